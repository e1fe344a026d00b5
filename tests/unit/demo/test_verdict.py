"""The verdict notices whatever goes wrong: each fact, falsified, fails the line that is about it and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oldhost_sync.demo.applications import Burst, Receipts, key_of, payload_of, request_of, ways
from oldhost_sync.demo.compression import environment, peak, settings_for
from oldhost_sync.demo.facts import Change, Facts, Record, as_accepted
from oldhost_sync.demo.verdict import OPERATIONS_SPARE, Run, failed, verdict
from oldhost_sync.planner import Arrival, arrivals, rehearse
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.outbox.books import Books

COMPRESSED = peak(30.0, changes=200, units=50)
CHANGES = arrivals(COMPRESSED.played)
STARTED_AT = 1_000.0
BAN = (2_000.0, 2_001.0)


def perfect() -> Run:
    """A run in which all went well: every change applied in its turn, half a second after it came."""
    newest = {change.key: change for change in CHANGES}
    sent = [
        change for change in CHANGES if change.priority_class is not PriorityClass.LWW or newest[change.key] is change
    ]
    shadow: dict[Record, Any] = {
        (change.entity_type, change.entity_id, change.event_type): payload_of(change) for change in newest.values()
    }
    books = Books(200, 0, 0, len(sent), 200 - len(sent), 0, 0, 0, 0, 0, 0)
    facts = Facts(
        books=books,
        changes=[_row(change) for change in CHANGES],
        shadow=shadow,
        records=dict(shadow),
        journal=[_entry(change) for change in sent],
        stats={"gaps": 0, "replays": 0, "bans": 1},
    )
    receipts = Receipts(accepted={"http": [key_of(change) for change in CHANGES], "signal": [], "apply_now": []})
    return Run(
        COMPRESSED, STARTED_AT, BAN, rehearse(COMPRESSED.played, changes=CHANGES), receipts, facts, None, burst()
    )


def burst() -> Burst:
    """3,000 changes, each answered after 20 ms; one in fifty was begun late by the generator, by 900 ms."""
    return Burst(took=[0.02] * 3_000, late=[0.9 if number % 50 == 0 else 0.001 for number in range(3_000)], lasted=10)


def _row(change: Arrival) -> Change:
    at = STARTED_AT + change.at_ms / 1000
    entity = (change.entity_type, change.entity_id)
    return Change(change.number, key_of(change), change.priority_class.value, entity, at, at + 0.5, "APPLIED")


def _entry(change: Arrival) -> dict[str, Any]:
    body = {
        "entity_type": change.entity_type,
        "entity_id": change.entity_id,
        "event_id": change.number,
        "idempotency_key": key_of(change),
    }
    return {"outcome": "applied", "body": body}


def test_a_run_in_which_all_went_well_passes() -> None:
    findings = verdict(perfect())
    assert not failed(findings)
    assert sum(finding.holds is True for finding in findings) >= 10


def answer_slowly(run: Run) -> None:
    """Two in a hundred."""
    run.burst.took = [0.3 if number % 50 == 0 else 0.02 for number in range(3_000)]


def refuse_one_of_the_burst(run: Run) -> None:
    run.burst.failed.append("demo-10001: 503")


def submit_no_burst(run: Run) -> None:
    run.burst.took.clear()


def _an_emergency(run: Run) -> int:
    return next(index for index, change in enumerate(run.facts.changes) if change.priority_class == "EMERGENCY")


def lose_a_change(run: Run) -> None:
    del run.facts.changes[_lww(run)]


def _lww(run: Run) -> int:
    return next(index for index, change in enumerate(run.facts.changes) if change.priority_class == "LWW")


def refuse_a_change(run: Run) -> None:
    run.receipts.accepted["http"].pop(_lww(run))


def leave_one_waiting(run: Run) -> None:
    run.facts.books = replace(run.facts.books, waiting=1, applied=run.facts.books.applied - 1)


def unbalance_the_books(run: Run) -> None:
    run.facts.books = replace(run.facts.books, applied=run.facts.books.applied - 1)


def reject_one(run: Run) -> None:
    run.facts.books = replace(run.facts.books, dead=1, applied=run.facts.books.applied - 1)


def send_too_much(run: Run) -> None:
    run.facts.journal += [{"outcome": "rejected", "body": None}] * 50


def send_a_tenth_more(run: Run) -> None:
    run.facts.journal += [{"outcome": "rejected", "body": None}] * (OPERATIONS_SPARE + 5)


def make_a_gap(run: Run) -> None:
    run.facts.stats["gaps"] = 1


def make_a_replay(run: Run) -> None:
    run.facts.stats["replays"] = 1


def ban_twice(run: Run) -> None:
    run.facts.stats["bans"] = 2


def send_twice(run: Run) -> None:
    run.facts.journal.append(run.facts.journal[-1])


def forget_an_emergency(run: Run) -> None:
    key = run.facts.changes[_an_emergency(run)].key
    run.facts.journal = [entry for entry in run.facts.journal if entry["body"]["idempotency_key"] != key]


def swap_the_order(run: Run) -> None:
    first = run.facts.journal[0]["body"]
    late = dict(first, event_id=0, idempotency_key="late")
    run.facts.journal.append({"outcome": "applied", "body": late})


def be_late_with_an_emergency(run: Run) -> None:
    index = _an_emergency(run)
    change = run.facts.changes[index]
    run.facts.changes[index] = replace(change, processed_at=change.accepted_at + 5)


def differ_in_one_record(run: Run) -> None:
    run.facts.records[next(iter(run.facts.records))] = {"status": "other"}


def have_a_record_too_many(run: Run) -> None:
    run.facts.records["unit", "nobody's", "e"] = {}


def leave_an_entity_unsynced(run: Run) -> None:
    run.facts.unsynced.append("unit/U-00001 is PENDING_SYNC")


@pytest.mark.parametrize(
    ("falsify", "what"),
    [
        (answer_slowly, "API at 300/s in real time"),
        (refuse_one_of_the_burst, "API at 300/s in real time"),
        (submit_no_burst, "API at 300/s in real time"),
        (lose_a_change, "accepted and lost"),
        (refuse_a_change, "changes submitted"),
        (leave_one_waiting, "every change has its fate"),
        (unbalance_the_books, "every change has its fate"),
        (reject_one, "  dead"),
        (send_too_much, "operations sent"),
        (make_a_gap, "gaps"),
        (make_a_replay, "replays"),
        (ban_twice, "bans"),
        (send_twice, "once each, and in order per entity"),
        (forget_an_emergency, "once each, and in order per entity"),
        (swap_the_order, "once each, and in order per entity"),
        (be_late_with_an_emergency, "EMERGENCY outside the ban"),
        (differ_in_one_record, "OldHost's records = shadow state"),
        (have_a_record_too_many, "OldHost's records = shadow state"),
        (leave_an_entity_unsynced, "every entity is SYNCED"),
    ],
)
def test_whatever_goes_wrong_is_noticed(falsify: Callable[[Run], None], what: str) -> None:
    run = perfect()
    falsify(run)
    assert [finding.what for finding in failed(verdict(run))] == [what]


def test_changes_that_came_late_are_compared_with_what_the_planner_makes_of_them() -> None:
    run = perfect()
    send_a_tenth_more(run)
    assert [finding.what for finding in failed(verdict(run))] == ["operations sent"]
    late = [
        replace(row, accepted_at=row.accepted_at + 60 * (number % 7)) for number, row in enumerate(run.facts.changes)
    ]
    planned = rehearse(COMPRESSED.played, changes=as_accepted(CHANGES, late, STARTED_AT))
    assert planned.operations > run.planned.operations + OPERATIONS_SPARE
    assert not failed(verdict(replace(run, planned=planned)))


def test_what_was_not_accepted_came_at_no_time() -> None:
    first, *others = perfect().facts.changes
    came = as_accepted(CHANGES, [replace(first, accepted_at=STARTED_AT + 5), *others[:-1]], STARTED_AT)
    times = {key_of(change): change.at_ms for change in came}
    assert times[first.key] == 5_000
    assert others[-1].key not in times
    assert list(times.values()) == sorted(times.values())


def test_an_emergency_that_the_ban_held_up_is_not_held_against_us() -> None:
    run = perfect()
    index = _an_emergency(run)
    run.facts.changes[index] = replace(run.facts.changes[index], accepted_at=BAN[0] - 0.1, processed_at=BAN[1] + 3)
    findings = {finding.what: finding for finding in verdict(run)}
    assert findings["EMERGENCY outside the ban"].holds
    assert findings["  delayed by the ban"].measured == "1"


def test_time_is_compressed_alike_for_oldhost_and_the_policy() -> None:
    real, played = COMPRESSED.real, COMPRESSED.played
    for name in ("duration_s", "ban_s", "ban_at_s", "latency_ms", "debounce_s", "max_wait_s"):
        assert getattr(played, name) == pytest.approx(getattr(real, name) / 30)
    assert (played.changes, played.units, played.burst_per_s) == (real.changes, real.units, real.burst_per_s)
    settings = settings_for(COMPRESSED)
    assert settings.debounce_seconds == pytest.approx(4.0)
    assert settings.database_url is None


def test_the_users_own_servers_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNC_DATABASE_URL", "mysql+pymysql://u:p@127.0.0.1:1/d")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "mine")
    assert settings_for(COMPRESSED).database_url is None
    assert not [name for name in environment() if name.startswith(("SYNC_", "TEMPORAL_"))]


def test_changes_come_in_all_three_ways() -> None:
    chosen = ways(arrivals(peak().played))
    assert chosen.count("apply_now") == 8
    assert chosen.count("signal") == 20
    assert chosen.count("http") == 9_972


def test_a_request_carries_its_key_and_its_token() -> None:
    request = request_of(CHANGES[0], "secret", "127.0.0.1:80").decode()
    head, body = request.split("\r\n\r\n")
    assert "Idempotency-Key: demo-00001" in head
    assert "Authorization: Bearer secret" in head
    assert f"Content-Length: {len(body)}" in head
