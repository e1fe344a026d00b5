"""OldHost and the ledger disagree: the writer halts and tells people, and `oldhost-sync resolve`
ends it as they decide."""

from __future__ import annotations

from typing import Any

import pytest

from oldhost_sync.store.read.entities import status_expression
from tests.faults.product import Product
from tests.integration.system.changes import record
from tests.integration.system.commands import oldhost_sync

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]


def begin(product: Product, count: int) -> list[int]:
    """So many changes are applied; the idle writer compares nonces every second."""
    product.start("relay", probe_seconds=1.0)
    product.start_worker()
    ids = record(product, count)
    product.wait_for("the first changes", lambda: product.all_have_fates(count))
    return ids


def wait_for_halt(product: Product, why: str) -> None:
    product.wait_for("the halt", lambda: product.status()["state"] == "HALTED")
    product.wait_for("the alert", lambda: "halted" in product.open_alerts())
    assert why in halted(product)
    assert why in product.sql("SELECT message FROM alerts WHERE kind = 'halted'")[0]["message"]


def halted(product: Product) -> str:
    return str(product.sql("SELECT halted FROM nonce_ledger")[0]["halted"])


def resolve(product: Product, mode: str) -> str:
    said = oldhost_sync(product, "resolve", mode, "--reason", "we looked into it", "--operator", "anna")
    return " ".join(said.split())  # where a line ends depends on the host's name


def check_resolved(product: Product, mode: str, changes: int) -> None:
    """All applied, nobody waits, the alert is closed, and who decided is on record."""
    product.wait_for("all fates", lambda: product.all_have_fates(changes))
    product.wait_for("the alert to be closed", lambda: "halted" not in product.open_alerts())
    assert set(product.fates().values()) == {"APPLIED"}
    ledger = product.sql("SELECT next_nonce, last_applied_nonce, halted FROM nonce_ledger")[0]
    expected = product.stats()["expected_nonce"]
    assert ledger == {"next_nonce": expected, "last_applied_nonce": expected - 1, "halted": None}
    status = status_expression(host="units.host", kind="'unit'", id="units.id")
    assert {row["shown"] for row in product.sql(f"SELECT {status} AS shown FROM units")} == {"SYNCED"}
    (audit,) = product.sql("SELECT operator, reason FROM operator_audit WHERE action = 'resolve'")
    assert audit == {"operator": "anna", "reason": "we looked into it"}
    stats = product.stats()
    assert (stats["gaps"], stats["replays"], stats["bans"]) == (0, 0, 0), (mode, stats)


def records(product: Product) -> dict[int, int]:
    """What OldHost has in the end: {change id: nonce}."""
    found: list[dict[str, Any]] = product.admin("GET", "/records")["records"]
    return {one["body"]["event_id"]: one["nonce"] for one in found if "event_id" in one["body"]}


def test_restored_host_halts_and_resend_gives_it_the_lost_operations_again_as_they_were(product: Product) -> None:
    ids = begin(product, 6)
    bodies = {entry["nonce"]: entry["raw_sha256"] for entry in product.journal()}
    product.admin("POST", "/actions/restore", {"expected_nonce": 4})
    wait_for_halt(product, "went back")
    ids += record(product, 1, entity="meanwhile")
    assert len(product.applied()) == 6

    resolve(product, "resend")
    check_resolved(product, "resend", 7)
    again = [entry for entry in product.journal()[6:] if entry["outcome"] == "applied"]
    assert [entry["nonce"] for entry in again] == [4, 5, 6, 7]
    assert [entry["raw_sha256"] for entry in again[:3]] == [bodies[nonce] for nonce in (4, 5, 6)]
    assert records(product) == dict(zip(ids, range(1, 8), strict=True))


def test_restored_host_halts_and_adopt_goes_on_from_its_count(product: Product) -> None:
    ids = begin(product, 5)
    product.admin("POST", "/actions/restore", {"expected_nonce": 4})
    wait_for_halt(product, "went back")
    ids += record(product, 1, entity="meanwhile")

    assert "2 operations that it lost" in resolve(product, "adopt")
    check_resolved(product, "adopt", 6)
    assert records(product) == {ids[0]: 1, ids[1]: 2, ids[2]: 3, ids[5]: 4}


def test_foreign_write_halts_and_after_resend_what_was_in_doubt_is_applied_once(product: Product) -> None:
    ids = begin(product, 2)
    product.fault("drop_before", next=1)
    product.fault("refuse", probability=1.0)  # so that nobody looks for it before another client wrote
    ids += record(product, 1, entity="dropped")
    product.wait_for("the drop", lambda: product.admin("GET", "/faults")["faults"][0]["fired"] == 1)
    product.admin("POST", "/actions/foreign-write", {"count": 2})
    product.no_faults()
    wait_for_halt(product, "another client wrote")

    assert "1 wait again" in resolve(product, "resend")
    check_resolved(product, "resend", 3)
    assert records(product) == dict(zip(ids, (1, 2, 5), strict=True))


def test_foreign_write_halts_and_after_adopt_what_was_in_doubt_counts_as_applied(product: Product) -> None:
    ids = begin(product, 2)
    product.fault("drop_after", next=1)
    product.fault("refuse", probability=1.0)  # so that nobody looks for it before another client wrote
    ids += record(product, 1, entity="answer-lost")
    product.wait_for("the operation", lambda: len(product.applied()) == 3)
    product.admin("POST", "/actions/foreign-write", {})
    product.no_faults()
    wait_for_halt(product, "another client wrote")
    ids += record(product, 1, entity="meanwhile")

    assert "1 in doubt count as applied" in resolve(product, "adopt")
    check_resolved(product, "adopt", 4)
    assert records(product) == dict(zip(ids, (1, 2, 3, 5), strict=True))
