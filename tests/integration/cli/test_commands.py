"""Every command against the running product: what it prints, what it changes, how it ends when something is away."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

from oldhost_sync.cli.main import app
from oldhost_sync.demo.facts import Admin
from oldhost_sync.environment import in_database, settings
from oldhost_sync.settings import Role
from oldhost_sync.stack.servers import Stack
from oldhost_sync.store.access import TokenHolder, open_session
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.schema_migration import migrate
from tests.faults.product import ROOT
from tests.integration.cli.conftest import Command, CommandResult
from tests.monitoring.alert_rules import rules

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes]

DEADLINE_SECONDS = 20.0


def until(look: Callable[[], Any], what: str) -> Any:
    """Look until it is so; the commands themselves take their time, so this is no busy loop."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"never: {what}"
        threading.Event().wait(0.05)
    return found


def submitted(command: Command, entity: str, event: str, payload: dict[str, Any], key: str) -> CommandResult:
    return command("submit", "--entity", entity, "--event", event, "--payload", json.dumps(payload), "--key", key)


def fate(command: Command, key: str) -> dict[str, Any]:
    found: dict[str, Any] = command("change", "show", key, "--json").json
    return found


def ended(command: Command, key: str, state: str) -> dict[str, Any]:
    found: dict[str, Any] = until(
        lambda: seen if (seen := fate(command, key))["state"] == state else None, f"{key} is {state}"
    )
    return found


# ------------------------------------------------------------------------------------------------------------- looking


def test_status_shows_the_writer_and_the_books(command: Command) -> None:
    def is_open() -> bool:
        writer = command("status", "--json").json["writer"]  # null until the writer answers in time
        return writer is not None and writer["session"]["phase"] == "open"

    until(is_open, "the first session is open")
    shown = command("status")
    assert (shown.code, shown.err) == (0, "")
    for word in ("EMERGENCY", "breaker", "next nonce", "accepted", "balance"):
        assert word in shown.out
    as_json = command("status", "--json").json
    assert as_json["writer"]["breaker"]["state"] == "CLOSED"
    assert as_json["books"]["balance"] is True


def test_status_without_temporal_still_shows_the_books(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    shown = command("status")
    assert shown.code == 1
    assert "balance" in shown.out
    assert "Temporal can't be reached" in shown.err


def test_status_without_the_database_still_shows_the_writer(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNC_DATABASE_URL", "mysql+pymysql://u:p@127.0.0.1:1/d")
    shown = command("status")
    assert shown.code == 1
    assert "breaker" in shown.out
    assert "the database can't be reached" in shown.err


def test_a_writer_that_was_never_started_is_told_with_how_to_start_it(
    command: Command, monkeypatch: pytest.MonkeyPatch, stack: Stack
) -> None:
    migrate(stack.addresses.migration_url, ("annex",))
    monkeypatch.setenv("SYNC_HOST", "annex")
    shown = command("pause", "--reason", "x")
    assert shown.code == 1
    assert "'annex' is not running" in shown.err
    assert "starter.py" in shown.err


def test_a_database_without_tables_is_told_to_be_migrated(
    command: Command, monkeypatch: pytest.MonkeyPatch, stack: Stack
) -> None:
    assert stack._mariadb is not None
    monkeypatch.setenv("SYNC_DATABASE_URL", stack._mariadb.create_database("empty").app)
    shown = command("alerts")
    assert shown.code == 1
    assert "oldhost-sync migrate" in shown.err


def test_migrate_installs_a_mapping_and_names_a_files_mistakes(
    command: Command, monkeypatch: pytest.MonkeyPatch, stack: Stack, tmp_path: Path
) -> None:
    path = tmp_path / "mapping.toml"
    monkeypatch.setenv("SYNC_DATABASE_URL", stack.addresses.migration_url)
    monkeypatch.setenv("SYNC_MAPPING_FILE", str(path))
    path.write_text('name = "rooms"\n[rules."*"]\nfields = { unit_id = "entity_id" }')
    shown = command("migrate")
    assert shown.code == 2
    assert "mapping.toml, line 3: rules.'*'.fields.unit_id: must be a JSON pointer" in shown.err
    path.write_text('name = "rooms"\nversion = "1"\n[rules."*"]\npreset = "oldhost"')
    shown = command("migrate")
    assert "made by mapping rooms/1" in shown.out


def test_migrate_says_the_revision(command: Command, monkeypatch: pytest.MonkeyPatch, stack: Stack) -> None:
    monkeypatch.setenv("SYNC_DATABASE_URL", stack.addresses.migration_url)
    shown = command("migrate")
    assert (shown.code, shown.err) == (0, "")
    assert "revision" in shown.out


def test_a_stack_in_this_folder_is_found(command: Command, monkeypatch: pytest.MonkeyPatch, stack: Stack) -> None:
    environment = stack.role_environment()
    stack.folder.write_environment(
        {name: value for name, value in environment.items() if name.startswith(("SYNC_", "TEMPORAL_"))}
    )
    for name in [name for name in environment if name.startswith(("SYNC_", "TEMPORAL_"))]:
        monkeypatch.setenv(name, "")  # so that what is adopted is taken back after the test
        monkeypatch.delenv(name)
    Path("var").mkdir()
    Path("var", "up.env").symlink_to(stack.folder.path / "up.env")
    assert command("status").code == 0


# ----------------------------------------------------------------------------------------------------------- one change


def test_a_submitted_change_can_be_followed_to_its_fate(command: Command) -> None:
    said = submitted(command, "U-1", "door_code_changed", {"code": "1"}, "one")
    assert said.code == 0
    assert "oldhost-sync --host oldhost change show one" in said.out
    found = ended(command, "one", "APPLIED")
    assert found["nonce"] is not None
    shown = command("change", "show", "one").out
    for step in ("accepted", "relayed", "sent", "answered"):
        assert step in shown


def test_submitting_again_under_the_same_key_gives_the_first_answer(command: Command) -> None:
    first = submitted(command, "U-2", "door_code_changed", {"code": "1"}, "again")
    again = submitted(command, "U-2", "door_code_changed", {"code": "1"}, "again")
    assert again.code == 0
    assert ", recorded before" in again.out
    other = submitted(command, "U-2", "door_code_changed", {"code": "2"}, "again")
    assert other.code == 1
    assert "used for another change" in other.err
    assert first.out.splitlines()[0].split()[-1] in again.out


def test_a_bad_change_is_refused_with_its_reason(command: Command) -> None:
    said = command("submit", "--entity", "U-1", "--event", "e", "--payload", "[]")
    assert said.code == 1
    assert "payload must be a JSON object" in said.err


def test_a_change_nobody_knows_is_told(command: Command) -> None:
    said = command("change", "show", "nowhere")
    assert said.code == 1
    assert "no change of host 'oldhost' has the key or the id 'nowhere'" in said.err


def test_find_says_where_an_entitys_changes_are(command: Command) -> None:
    submitted(command, "booking/B-1", "booking_created", {"nights": 2}, "booking")
    submitted(command, "U-3", "unit_status_changed", {"status": "Dirty"}, "waits")
    ended(command, "booking", "APPLIED")
    assert command("find", "booking/B-1", "--json").json["changes"][0]["outcome"] == "APPLIED"
    found = until(
        lambda: seen if (seen := command("find", "U-3", "--json").json)["writer"]["changes"] else None, "at the writer"
    )
    assert found["writer"]["changes"][0]["place"] == "debounced"
    assert "debounced" in command("find", "U-3").out
    assert command("find", "B-1", "--type", "booking").code == 0
    unknown = command("find", "U-999")
    assert unknown.code == 1
    assert "unit/U-999 is unknown" in unknown.err


# --------------------------------------------------------------------------------------------------------------- a file


def lines(count: int, prefix: str) -> list[str]:
    return [
        json.dumps(
            {"entity_type": "unit", "entity_id": f"{prefix}-{n}", "event_type": "checked_in", "payload": {"n": n}}
        )
        for n in range(count)
    ]


def test_a_file_is_submitted_and_a_repeated_run_is_harmless(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    file.write_text("\n".join(lines(20, "F")))
    first = command("submit", str(file), "--json")
    assert first.code == 0
    assert first.json == {"lines": 20, "recorded": 20, "recorded_before": 0, "refused": []}
    assert command("submit", str(file), "--json").json["recorded_before"] == 20


def test_a_file_with_a_bad_line_records_nothing_and_names_the_line(command: Command, tmp_path: Path) -> None:
    file, refused = tmp_path / "changes.jsonl", tmp_path / "refused.jsonl"
    file.write_text("\n".join([*lines(2, "G"), "{", *lines(1, "H")]))
    said = command("submit", str(file), "--refused-to", str(refused))
    assert said.code == 1
    assert "Nothing was recorded" in said.out
    assert any(line.split()[:1] == ["3"] for line in said.out.splitlines())
    assert refused.read_text() == "{\n"
    assert command("find", "G-0").code == 1


def test_the_valid_lines_of_a_file_are_recorded_when_asked_for(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    file.write_text("\n".join([*lines(2, "I"), "{"]))
    said = command("submit", str(file), "--valid-only", "--json")
    assert said.code == 1
    assert said.json["recorded"] == 2
    assert [refusal["line"] for refusal in said.json["refused"]] == [3]


def test_a_key_that_belongs_to_another_change_is_found_before_anything_is_recorded(
    command: Command, tmp_path: Path
) -> None:
    submitted(command, "U-4", "door_code_changed", {"code": "1"}, "taken")
    taken = {"entity_type": "unit", "entity_id": "U-4", "event_type": "door_code_changed", "payload": {"code": "2"}}
    file = tmp_path / "changes.jsonl"
    file.write_text("\n".join([*lines(1, "J"), json.dumps(taken | {"idempotency_key": "taken"})]))
    said = command("submit", str(file), "--json")
    assert said.code == 1
    assert said.json["recorded"] == 0
    assert said.json["refused"][0]["line"] == 2


def test_refused_lines_that_cant_be_written_are_told_before_anything_is_recorded(
    command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "changes.jsonl"
    file.write_text("\n".join([*lines(1, "M"), "{"]))
    said = command("submit", str(file), "--valid-only", "--refused-to", str(tmp_path / "absent" / "refused"))
    assert said.code == 2
    assert "can't be written" in said.err
    assert "Nothing was recorded" in said.err
    assert command("find", "M-0").code == 1


def test_a_key_taken_between_check_and_recording_is_refused_and_the_others_are_told_as_recorded(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(command, "U-6", "door_code_changed", {"code": "1"}, "late")
    late = {"entity_type": "unit", "entity_id": "U-6", "event_type": "door_code_changed", "payload": {"code": "2"}}
    file = tmp_path / "changes.jsonl"
    file.write_text("\n".join([json.dumps(late | {"idempotency_key": "late"}), *lines(2, "L")]))
    monkeypatch.setattr("oldhost_sync.cli.submission.check_known_keys", lambda _engine, _host, checked: checked)
    said = command("submit", str(file))
    assert said.code == 1
    assert "Submitted: 3 lines, 2 recorded, 0 recorded before, 1 refused." in said.out
    assert "Nothing was recorded" not in said.out


def test_with_a_refused_line_the_other_lines_of_its_entity_are_refused_and_name_it(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(command, "U-8", "door_code_changed", {"code": "1"}, "late-8")
    late = {"entity_type": "unit", "entity_id": "N-0", "event_type": "checked_in", "payload": {"code": "2"}}
    file = tmp_path / "changes.jsonl"
    file.write_text("\n".join([*lines(2, "N"), json.dumps(late | {"idempotency_key": "late-8"})]))
    monkeypatch.setattr("oldhost_sync.cli.submission.check_known_keys", lambda _engine, _host, checked: checked)
    said = command("submit", str(file), "--json").json
    assert (said["recorded"], [refusal["line"] for refusal in said["refused"]]) == (1, [1, 3])
    assert said["refused"][0]["reason"] == "line 3 is of the same entity and was refused"


def test_a_held_entity_stops_a_file_and_the_next_run_records_the_rest(
    command: Command, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oldhost_sync.cli.submission.LOCKED_SECONDS_MAX", 0.2)
    submitted(command, "O-1", "checked_in", {}, "held-1")
    file = tmp_path / "changes.jsonl"
    file.write_text("\n".join(lines(3, "O")))
    engine = create_engine(stack.role_environment()["SYNC_DATABASE_URL"])
    with engine.connect() as holder:
        holder.exec_driver_sql("SET SESSION idle_transaction_timeout = 0")
        holder.exec_driver_sql("SELECT * FROM units WHERE host = 'oldhost' AND id = 'O-1' FOR UPDATE")
        said = command("submit", str(file))
    engine.dispose()
    assert said.code == 1
    assert "stopped at line 2; 2 lines are recorded" in said.err
    again = command("submit", str(file), "--json").json
    assert (again["recorded"], again["recorded_before"]) == (1, 2)


def test_find_shows_what_is_kept_for_later(command: Command) -> None:
    assert command(
        "submit", "--entity", "U-7", "--event", "checked_in", "--payload", "{}",
        "--key", "later", "--not-before", (datetime.now(UTC) + timedelta(days=9)).isoformat(),
    ).code == 0  # fmt: skip
    assert "later" in command("find", "U-7").out
    assert command("find", "U-7", "--json").json["scheduled"][0]["idempotency_key"] == "later"


def test_a_file_can_be_checked_without_recording(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    file.write_text("\n".join(lines(1, "K")))
    assert "Checked: 1 lines, 0 recorded" in command("submit", str(file), "--check").out
    assert command("find", "K-0").code == 1


# ----------------------------------------------------------------------------------------------------------- operating


def test_a_pause_is_shown_refused_twice_and_ended(command: Command) -> None:
    assert command("pause", "--reason", "quiet please", "--operator", "anna").code == 0
    told = command("status", "--json").json["situation"]
    assert (told["word"], told["why"]) == ("PAUSED", "anna (command-line, not verified) paused it: quiet please.")
    assert f"PAUSED  {told['why']}" in command("status").out
    (line,) = (each for each in command("hosts", "--json").json["hosts"] if each["host"] == "oldhost")
    assert (line["state"], line["why"]) == (told["word"], told["why"])
    again = command("pause", "--reason", "x")
    assert again.code == 1
    assert "already paused by anna" in again.err
    assert command("resume", "--reason", "done").code == 0
    assert command("resume", "--reason", "done").code == 1


def test_a_flush_sends_what_the_debounce_holds(command: Command) -> None:
    submitted(command, "U-5", "unit_status_changed", {"status": "Clean"}, "flushed")
    until(lambda: command("find", "U-5", "--json").json["writer"]["changes"], "at the writer")
    assert "1 key of unit/U-5 will be sent now" in command("flush", "U-5", "--reason", "the owner waits").out
    ended(command, "flushed", "APPLIED")


def test_a_flush_of_what_is_not_debounced_says_so(command: Command) -> None:
    assert "nothing of unit/U-404 is debounced" in command("flush", "U-404", "--reason", "mistyped").out


def test_there_is_nothing_to_resolve_without_a_halt(command: Command) -> None:
    said = command("resolve", "adopt", "--reason", "x")
    assert said.code == 1
    assert "nothing to resolve" in said.err
    assert command("resolve", "guess", "--reason", "x").code == 2


def test_a_dead_letter_is_listed_alerted_retried_and_discarded(command: Command, admin: Admin) -> None:
    admin.ask("/faults", {"name": "reject", "rule": {"field": "payload.code", "equals": "bad"}})
    for key in ("retried", "discarded"):
        submitted(command, f"U-{key}", "door_code_changed", {"code": "bad"}, key)
        ended(command, key, "DEAD")
    letters = {
        letter["idempotency_key"]: letter["change_id"] for letter in command("dead-letters", "list", "--json").json
    }
    assert set(letters) == {"retried", "discarded"}
    assert "door_code_changed" in command("dead-letters", "list").out
    first = min(letters.values())
    assert f"There may be more: --after {first}" in command("dead-letters", "list", "--limit", "1").out
    assert until(lambda: "dead-letter" in command("alerts").out, "alerted")
    assert command("dead-letters", "discard", str(letters["discarded"]), "--reason", "gone").code == 0
    admin.ask("/faults", {"name": "reject", "next": 0})
    assert command("dead-letters", "retry", str(letters["retried"]), "--reason", "mended").code == 0
    ended(command, "retried", "APPLIED")
    ended(command, "discarded", "DISCARDED")
    assert "No dead letters" in command("dead-letters", "list").out
    assert command("dead-letters", "retry", "999999", "--reason", "x").code == 1


def test_a_rule_is_set_and_holds_from_the_next_change_on(command: Command) -> None:
    assert command("rules", "list", "--json").json["rate_changed"] == "LWW"
    assert command("rules", "set", "pool_closed", "emergency").code == 0
    assert command("rules", "list", "--json").json["pool_closed"] == "EMERGENCY"
    submitted(command, "U-6", "pool_closed", {}, "pool")
    assert fate(command, "pool")["priority_class"] == "EMERGENCY"
    assert command("rules", "set", "no good", "LWW").code == 2
    (act,) = command("audit", "--action", "set-rule", "--json").json
    assert act["detail"] == {"event_type": "pool_closed", "from": "TXN", "to": "EMERGENCY"}


def test_a_change_is_looked_up_by_its_id_and_found_by_the_search(command: Command) -> None:
    submitted(command, "U-look", "unit_status_changed", {"status": "Clean"}, "look-1")
    number = str(fate(command, "look-1")["change_id"])
    assert command("change", "show", number, "--json").json["idempotency_key"] == "look-1"
    assert "key look-1" in command("change", "show", number).out
    assert command("change", "show", "99999999999999999999").code == 1
    (hit,) = command("search", "look-1", "--json").json
    assert (hit["kind"], str(hit["change_id"])) == ("change", number)
    assert "unit/U-look" in command("search", "U-look").out
    nothing = command("search", "nobody-knows-it")
    assert (nothing.code, "Nothing was found" in nothing.out) == (1, True)


def test_what_is_scheduled_is_listed_and_cancelled_with_a_reason(command: Command) -> None:
    later = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    command(
        "submit", "--entity", "U-later", "--event", "checked_out", "--payload", "{}", "--key", "later-1",
        "--not-before", later,
    )  # fmt: skip
    assert "later-1" in [each["idempotency_key"] for each in command("scheduled", "list", "--json").json]
    assert "later-1" in command("scheduled", "list").out
    assert command("scheduled", "cancel", "later-1", "--reason", " ").code == 2
    assert command("scheduled", "cancel", "later-1", "--reason", "not any more", "--operator", "ada").code == 0
    assert command("scheduled", "cancel", "later-1", "--reason", "again").code == 1
    (act,) = command("audit", "--action", "cancel-scheduled", "--json").json
    assert (act["operator"], act["reason"]) == ("ada", "not any more")
    assert "cancel-scheduled" in command("audit").out


def test_what_goes_next_is_listed(command: Command) -> None:
    assert command("upcoming").code == 0
    assert isinstance(command("upcoming", "--count", "5", "--json").json, list)


def test_alerts_are_listed_closed_ones_too(command: Command) -> None:
    assert command("alerts").code == 0
    assert isinstance(command("alerts", "--all", "--json").json, list)


def test_an_alert_is_acknowledged_and_closed_at_the_terminal(command: Command) -> None:
    config = settings()
    in_database(config, lambda connection: raise_alert(connection, config.host, "strays", "info", "three found"))
    # By a key of its own: the running relay closes that of its retention when a pass has ended.
    slow = config.host, "retention-behind", "warning", "slow"
    in_database(config, lambda connection: raise_alert(connection, *slow, dedupe_key="of this test"))
    (stray,) = command("alerts", "--kind", "strays", "--json").json
    number = str(stray["alert_id"])
    assert command("alerts", "ack", number, "--reason", "mine", "--operator", "ada").code == 0
    assert "ada is handling it" in command("alerts").out
    assert command("alerts", "close", number, "--reason", " ").code == 2
    assert command("alerts", "close", number, "--reason", "seen", "--operator", "ada").code == 0
    (closed,) = command("alerts", "--closed", "--kind", "strays", "--json").json
    assert (closed["closed_by"], closed["close_reason"]) == ("ada", "seen")
    (behind,) = command("alerts", "--kind", "retention-behind", "--json").json
    refused = command("alerts", "close", str(behind["alert_id"]), "--reason", "be gone")
    assert (refused.code, "the product closes alerts of this kind itself" in refused.err) == (1, True)


def test_the_running_roles_show_what_the_rules_ask_for(stack: Stack) -> None:
    of_api = urllib.request.Request(f"{stack.addresses.api}/metrics")
    of_api.add_header("Authorization", f"Bearer {stack.tokens[Role.OPS]}")

    def shown() -> str:
        asked = [*map(urllib.request.Request, stack.addresses.metrics), of_api]
        return "\n".join(urllib.request.urlopen(one, timeout=10).read().decode() for one in asked)

    named = {name for rule in rules().values() for name in re.findall(r"oldhost_sync_[a-z_]+", rule.expression)}
    assert until(lambda: "oldhost_sync_writer_state{" in shown(), "looked at")
    page = shown()
    assert [name for name in sorted(named) if f"# TYPE {name.removesuffix('_total')}" not in page] == []
    assert {'role="api"', 'role="relay"', 'role="worker"'} <= {*re.findall(r'role="\w+"', page)}
    assert len(stack.addresses.sdk_metrics) == 1
    with urllib.request.urlopen(stack.addresses.sdk_metrics[0], timeout=10) as sdk:
        assert "oldhost_sync_temporal_worker_task_slots_available" in sdk.read().decode()


def test_one_command_line_is_for_many_hosts(command: Command, monkeypatch: pytest.MonkeyPatch, stack: Stack) -> None:
    monkeypatch.setenv("SYNC_HOST", stack.settings.host)  # and is put back: --host sets it for its one command
    migrate(stack.addresses.migration_url, ("annex",))
    assert [each["host"] for each in command("hosts", "--json").json["hosts"]] == ["annex", stack.settings.host]
    assert command("--host", "annex", "rules", "list").code == 0
    wrong = command("--host", "nonsense", "rules", "list")
    assert (wrong.code, "knows no host 'nonsense', only annex, " in wrong.err) == (1, True)


# They need none, make it known, or are roles, which look for themselves.
NOT_ASKED = {
    "demo",
    "driver check",
    "driver measure",
    "migrate",
    "simulator",
    "tokens new",
    "up",
    "api",
    "relay",
    "worker",
}
ABOUT_A_HOST = {
    "alerts": "", "alerts ack": "1 -r x", "alerts close": "1 -r x", "audit": "",
    "change show": "x", "change withdraw": "--source x -r x",
    "dead-letters confirm": "1 -r x",
    "dead-letters discard": "1 -r x", "dead-letters list": "", "dead-letters retry": "1 -r x", "find": "A-1",
    "flush": "-r x", "hosts": "", "lost-changes": "", "pause": "-r x", "plan": "--from-now", "resolve": "adopt -r x",
    "resume": "-r x", "resync": "--all -r x", "resync-nightly": "03:30", "resyncs": "", "rules list": "",
    "rules set": "x TXN", "scheduled cancel": "x -r x", "scheduled list": "", "search": "x", "settlement list": "",
    "settlement verify": "", "settlement write": "", "status": "", "submit": "--entity A-1 --event x --payload {}",
    "sign-ins end": "vera -r x", "sign-ins list": "", "tokens list": "", "tokens usage": "", "upcoming": "",
    "webhooks": "", "webhooks replay": "shop --from latest -r x",
}  # fmt: skip


def names_of(command: Any, *before: str) -> Iterator[str]:
    """Of all commands that do something by themselves."""
    parts = getattr(command, "commands", {})
    if before and (not parts or command.invoke_without_command):
        yield " ".join(before)
    for name, each in parts.items():
        yield from names_of(each, *before, name)


def test_of_each_command_it_is_known_whether_it_is_about_a_host() -> None:
    assert {*names_of(typer.main.get_command(app))} == NOT_ASKED | {*ABOUT_A_HOST}


@pytest.mark.parametrize("name", ABOUT_A_HOST)
def test_a_host_that_nobody_knows_is_refused_and_not_shown_as_empty(
    command: Command, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SYNC_HOST", "nonsense")
    monkeypatch.setenv("SYNC_SETTLEMENT_DIR", str(tmp_path))
    refused = command(*name.split(), *ABOUT_A_HOST[name].split())
    assert (refused.code, refused.out) == (1, ""), refused
    assert "the database knows no host 'nonsense'" in refused.err, refused
    assert "is not running" not in refused.err, refused


@pytest.mark.usefixtures("surroundings")
def test_no_writer_is_started_for_a_host_that_nobody_knows() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "starter.py")],
        env={**os.environ, "SYNC_HOST": "nonsense"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("starter.py: SYNC_HOST: the database knows no host 'nonsense'")


def test_a_temporal_that_is_silent_does_not_hold_a_command_up(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oldhost_sync.cli.resync.TEMPORAL_SECONDS_MAX", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("TEMPORAL_ADDRESS", f"127.0.0.1:{silent.getsockname()[1]}")
        said = command("resync-nightly")
    assert (said.code, "Temporal did not answer within 0.5 s" in said.err) == (1, True)


@pytest.mark.parametrize("of", ["--unit", "--property"])
def test_a_resync_of_what_is_not_there_is_refused(command: Command, of: str) -> None:
    refused = command("resync", of, "nosuch", "--reason", "x")
    assert (refused.code, "'nosuch'; nothing is sent again" in refused.err) == (1, True)
    assert command("resyncs").out == "No resync has been requested yet.\n"


def test_operators_see_who_is_signed_in_and_sign_them_out(command: Command) -> None:
    assert command("sign-ins", "list").out == "Nobody is signed in.\n"
    holder = TokenHolder("vera", b"f" * 32, 600.0)
    host = settings().host
    for digest in (b"1" * 32, b"2" * 32):
        in_database(settings(), partial(open_session, host=host, digest=digest, holder=holder))
    assert [each["name"] for each in command("sign-ins", "list", "--json").json] == ["vera", "vera"]
    assert command("sign-ins", "end", "vera", "--reason", "left a screen open").out == "2 sign-ins of vera ended.\n"
    assert command("sign-ins", "list").out == "Nobody is signed in.\n"
    act = command("audit", "--json").json[0]
    assert (act["action"], act["reason"]) == ("end-sign-ins", "left a screen open")


def test_a_role_takes_its_hosts_from_the_settings(command: Command) -> None:
    refused = command("--host", "annex", "worker")
    assert (refused.code, "SYNC_OLDHOST_URLS" in refused.err) == (2, True)
