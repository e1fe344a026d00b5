"""The drill: back the database up, go on, restore it. OldHost is ahead then; docs/backup.md says what to do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from oldhost_sync.stack.machine import need_program
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.faults.product import ROOT, Product
from tests.faults.scene import end_writer
from tests.integration.system.commands import oldhost_sync

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

# As in docs/backup.md, which a test compares.
DUMP = "mariadb-dump --single-transaction --quick --hex-blob --no-tablespaces --skip-add-locks"
ROLES = ("relay", "worker", "api")
PROGRAM_SECONDS_MAX = 60.0


def program(server: PrivateMariaDB, command: str, *arguments: str, **files: Any) -> None:
    name, *options = command.split()
    found = need_program(name, install="install Debian's mariadb-client")
    argv = [found, *server.as_root(), *options, *arguments]
    subprocess.run(argv, check=True, timeout=PROGRAM_SECONDS_MAX, **files)


def back_up(server: PrivateMariaDB, product: Product, path: Path) -> None:
    with path.open("wb") as backup:
        program(server, DUMP, name_of_database(product), stdout=backup)


def restore(server: PrivateMariaDB, product: Product, path: Path) -> None:
    """All tables as they were: the backup drops and makes each."""
    with path.open("rb") as backup:
        program(server, "mariadb", name_of_database(product), stdin=backup)


def name_of_database(product: Product) -> str:
    return str(product.sql("SELECT DATABASE() AS name")[0]["name"])


def start_roles(product: Product) -> None:
    product.start("relay")
    product.start_worker()
    product.start_api()


def stop_roles(product: Product) -> None:
    for role in ROLES:
        product.children[role].stop()


def submit(product: Product, name: str, count: int) -> dict[str, int]:
    """Bookings, each of an apartment of its own, with keys that the application knows: {key: change id}."""
    keys = [f"{name}-{number}" for number in range(count)]
    return {key: product.api.change(key, "booking_created", {"of": key}, key=key) for key in keys}


def at_oldhost(product: Product) -> list[str]:
    return [one["body"]["entity_id"] for one in product.journal() if one["outcome"] == "applied"]


def all_relayed(product: Product) -> bool:
    """Of those without a fate: a writer that has just begun may be done with a change before its mark."""
    return not product.sql("SELECT id FROM outbox_events WHERE relayed_at IS NULL AND processed_at IS NULL")


def all_ended(product: Product) -> bool:
    return None not in product.fates().values()


def test_a_restored_backup_halts_is_resolved_once_and_what_was_lost_is_named_and_sent_again(
    product: Product, mariadb_server: PrivateMariaDB, tmp_path: Path
) -> None:
    start_roles(product)
    kept = submit(product, "kept", 3)
    product.wait_for("what the backup has", lambda: len(at_oldhost(product)) == 3 and all_ended(product))
    back_up(mariadb_server, product, tmp_path / "backup.sql")

    lost = submit(product, "lost", 4)
    product.wait_for("what OldHost has and the backup has not", lambda: len(at_oldhost(product)) == 7)
    product.wait_for("their fates", lambda: all_ended(product))
    end_writer(product, "terminate")  # what was handed over is in the histories of two runs that nothing connects
    product.children["worker"].stop()
    unsent = submit(product, "unsent", 2)
    product.wait_for("Temporal to have them", lambda: all_relayed(product))
    stop_roles(product)
    restore(mariadb_server, product, tmp_path / "backup.sql")
    start_roles(product)

    product.wait_for("the halt", lambda: "halted" in product.open_alerts(), 60)
    told = product.sql("SELECT message FROM alerts WHERE kind = 'halted' AND is_open = 1")[0]["message"]
    assert "OldHost expects nonce 8" in told or "is not in the database" in told
    named = json.loads(oldhost_sync(product, "lost-changes", "--json"))
    assert {each["entity_id"]: each["change_id"] for each in named} == lost | unsent

    oldhost_sync(product, "resolve", "adopt", "--reason", "restored from the backup", "--operator", "anna")
    product.wait_for("the alert to be closed", lambda: "halted" not in product.open_alerts(), 60)
    # The application sends all of the day again, with the same keys: what the backup had is a repetition.
    again = submit(product, "kept", 3) | submit(product, "lost", 4) | submit(product, "unsent", 2)
    assert {key: again[key] for key in kept} == kept
    product.wait_for("all fates", lambda: all_ended(product), 60)

    counts = {key: at_oldhost(product).count(key) for key in again}
    assert counts == dict.fromkeys(kept, 1) | dict.fromkeys(lost, 2) | dict.fromkeys(unsent, 1)
    assert set(product.fates().values()) == {"APPLIED"}
    stats = product.stats()
    assert (stats["gaps"], stats["replays"], stats["bans"]) == (0, 0, 0)
    ledger = product.sql("SELECT next_nonce, halted FROM nonce_ledger")[0]
    assert ledger == {"next_nonce": stats["expected_nonce"], "halted": None}


def test_the_backup_is_made_by_the_documented_command() -> None:
    assert f" {DUMP} " in (ROOT / "docs" / "backup.md").read_text()
