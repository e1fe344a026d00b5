from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ProgrammingError

from activities import records, submissions
from activities.records import PAGE_PAUSE_SECONDS, RecordingActivities, unhurried
from activities.submissions import (
    LOCK_WAITS_SECONDS_MAX,
    LOCKED,
    LeftSubmissions,
    SubmissionActivities,
    record_or_leave,
)
from oldhost_sync.fields.change import FIELDS
from oldhost_sync.oldhost.ledger import Count
from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.limits import LOCK_WAIT_SECONDS_MAX
from oldhost_sync.policy.machine.actions import LoadOutstanding, Sweep
from oldhost_sync.policy.machine.outstanding_changes import Part
from oldhost_sync.policy.rules.alert_kinds import KINDS
from oldhost_sync.policy.rules.operator_act import END_PAUSE, sign
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import DatabaseUnavailable, StatementTooSlow
from oldhost_sync.store.intake.change_recorder import record_change
from tests.called_by_writer import called_by_writer
from tests.conformance.maria_world import HOST, MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from workflows import messages
from workflows.messages import from_wire, why_unprintable

pytestmark = pytest.mark.mariadb

GOOD = {"entity_type": "unit", "entity_id": "u1", "event_type": "checked_in", "payload": {"guest": 7}}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=6),
)
# What JSON can carry and nobody expects: halves of characters, characters without a glyph, the ends of time and of
# numbers.
odd_text = st.sampled_from(["\ud800", "x\udfff", "\x00", "\x1b[2J", "\u202e", "🏠", "x" * 200, ""])
odd_values = odd_text | st.sampled_from(
    ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", 10**30, -(10**400), float("nan"), float("inf"), {}]
)
likely_values = st.sampled_from(["unit", "u1", "checked_in", "guest_locked_out", "2026-05-01T12:00:00Z"])
changes = st.dictionaries(st.sampled_from(FIELDS) | odd_text, likely_values | odd_values | json_values)
# Right but for one field: gets as far as a change can get.
nearly_good = st.builds(
    lambda field, value: GOOD | {field: value},
    st.sampled_from(FIELDS) | odd_text,
    odd_values | json_values,
)


def submit(world: MariaWorld, change: Any, key: str = "fallback-1", **fields: Any) -> messages.Recorded:
    item = messages.Submission(change, key, **fields)
    activities = SubmissionActivities(world.engine)
    (recorded,) = called_by_writer().run(activities.record_submissions, messages.Submissions([item]))
    return recorded


def test_a_submission_is_recorded_under_its_own_key_or_the_workflows(world: MariaWorld) -> None:
    own = submit(world, GOOD | {"idempotency_key": "mine"})
    given_ = submit(world, GOOD)
    assert (own.idempotency_key, given_.idempotency_key) == ("mine", "fallback-1")
    assert own.ref is not None
    assert own.ref[0] == own.change_id


def test_a_repeated_submission_gets_its_first_answer(world: MariaWorld) -> None:
    first, second = submit(world, GOOD), submit(world, GOOD)
    assert (first.change_id, first.ref) == (second.change_id, second.ref)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (["not an object"], "JSON object"),
        ("too large: 70000 bytes, at most 65536 are taken", "too large: 70000 bytes"),
        (None, "JSON object"),
        ({}, "lacks entity_type, entity_id"),
        (GOOD | {"color": "red"}, "unknown fields: color"),
        (GOOD | {"payload": []}, "payload"),
        (GOOD | {"entity_id": ""}, "entity_id"),
        (GOOD | {"event_type": 7}, "event_type"),
        (GOOD | {"not_before": "tomorrow"}, "not_before"),
        (GOOD | {"occurred_at": "2026-05-01T12:00:00"}, "occurred_at"),
    ],
)
def test_bad_input_becomes_a_visible_refused_change_with_an_alert(world: MariaWorld, change: Any, why: str) -> None:
    recorded = submit(world, change)
    assert recorded.ref is None
    assert why in recorded.refused
    assert world.read("SELECT outcome, relayed_at FROM outbox_events") == [("REFUSED", None)]
    assert world.read("SELECT kind FROM alerts") == [("submission-refused",)]
    assert submit(world, change).refused == recorded.refused
    assert world.read("SELECT COUNT(*) FROM alerts") == [(1,)]


def test_apply_now_takes_only_emergencies_and_keeps_no_row_of_what_it_refuses(world: MariaWorld) -> None:
    recorded = submit(world, GOOD, only_class="EMERGENCY")
    assert "not EMERGENCY" in recorded.refused
    assert world.read("SELECT COUNT(*) FROM outbox_events") == [(0,)]
    urgent = submit(world, GOOD | {"event_type": "guest_locked_out"}, only_class="EMERGENCY")
    assert urgent.ref is not None
    assert urgent.ref[1] == "EMERGENCY"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    change=nearly_good | changes | json_values,
    number=st.integers(0, 10**9),
    only_class=st.sampled_from(["", "EMERGENCY"]),
)
def test_no_submission_breaks_the_recording(world: MariaWorld, change: Any, number: int, only_class: str) -> None:
    recorded = submit(world, change, f"fallback-{number}", only_class=only_class)
    assert recorded.refused or recorded.idempotency_key
    assert why_unprintable(recorded.refused, lines=True) == ""
    assert recorded.ref is None or from_wire(recorded.ref).change_id == recorded.change_id


POISON: list[dict[str, Any]] = [
    {"\ud800": 1},
    GOOD | {"\ud800": 1},
    GOOD | {"\x00": 1, "\x1b[2J": 2},
    GOOD | {"event_type": "x\ud800"},
    GOOD | {"event_type": "x\x00"},
    GOOD | {"event_type": "🏠"},
    GOOD | {"entity_type": "\ud800"},
    GOOD | {"entity_id": "u\udfff"},
    GOOD | {"entity_id": "\x1b[2J"},
    GOOD | {"payload": {"\ud800": 1}},
    GOOD | {"payload": {"guest": ["\ud800"]}},
    GOOD | {"payload": {"guest": float("nan")}},
    GOOD | {"payload": {"guest": float("-inf")}},
    GOOD | {"payload": {"guest": 10**4000, "name": "x" * 30_000}},
    GOOD | {"idempotency_key": "\ud800"},
    GOOD | {"idempotency_key": 10**30},
    GOOD | {"occurred_at": "0001-01-01T00:00:00+23:59"},
    GOOD | {"occurred_at": "9999-12-31T23:59:59-23:59"},
    GOOD | {"occurred_at": "\ud800"},
    GOOD | {"occurred_at": 10**30},
    GOOD | {"not_before": "9999-12-31T23:59:59-23:59"},
    GOOD | {"not_before": float("inf")},
]


@pytest.mark.parametrize("change", POISON, ids=ascii)
def test_what_utf8_or_a_column_cannot_hold_is_refused_like_any_mistake(
    world: MariaWorld, change: dict[str, Any]
) -> None:
    recorded = submit(world, change)
    urgent = submit(world, change, "fallback-2", only_class="EMERGENCY")
    assert recorded.refused.encode()
    assert urgent.refused.encode()
    assert world.read("SELECT outcome, error FROM outbox_events") == [("REFUSED", recorded.refused)]
    assert world.read("SELECT message FROM alerts") == [(f"A submitted change was refused: {recorded.refused}",)]


@pytest.mark.parametrize(
    "change",
    [
        GOOD | {"entity_id": "🏠"},
        GOOD | {"payload": {"🏠": "\x00"}},
        GOOD | {"payload": {"guest": 2**63 - 1}},
        GOOD | {"not_before": "1970-01-01T00:00:00Z"},
    ],
    ids=ascii,
)
def test_what_is_odd_and_can_be_held_is_recorded(world: MariaWorld, change: dict[str, Any]) -> None:
    recorded = submit(world, change)
    assert recorded.refused == ""
    assert recorded.ref is not None
    assert from_wire(recorded.ref).entity_id == change["entity_id"]


@pytest.mark.parametrize("error", [ValueError, TypeError, OverflowError, UnicodeError])
def test_an_error_that_nobody_foresaw_refuses_its_own_item_only(
    world: MariaWorld, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def break_on_u2(connection: Any, **fields: Any) -> Any:
        recorded = record_change(connection, **fields)
        if fields["entity_id"] == "u2":
            raise error("guest 7")
        return recorded

    monkeypatch.setattr(submissions, "record_change", break_on_u2)
    items = [messages.Submission(GOOD | {"entity_id": unit}, unit) for unit in ("u1", "u2", "u3")]
    request = messages.Submissions(items)
    done = called_by_writer().run(SubmissionActivities(world.engine).record_submissions, request)
    assert [one.refused for one in done] == ["", f"it can't be recorded ({error.__name__})", ""]
    assert world.read("SELECT outcome FROM outbox_events ORDER BY id") == [(None,), ("REFUSED",), (None,)]


def test_values_that_the_database_refuses_refuse_the_item_and_a_fault_of_its_own_does_not(
    world: MariaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(statement: str) -> messages.Recorded:
        monkeypatch.setattr(
            submissions, "record_change", lambda connection, **fields: connection.exec_driver_sql(statement)
        )
        return submit(world, GOOD)

    refused = run(f"INSERT INTO event_rules VALUES ('oldhost', '{'x' * 65}', 'TXN')").refused
    assert refused == "the database can't hold it (MariaDB 1406)"
    with pytest.raises(ProgrammingError):
        run("SELECT 1 FROM nowhere")


def test_outstanding_changes_are_loaded(world: MariaWorld) -> None:
    ids = [world.record(f"u{number}") for number in range(3)]
    world.execute("UPDATE outbox_events SET outcome = 'DEAD', processed_at = UTC_TIMESTAMP(6) WHERE id = %s", ids[1])
    activities = RecordingActivities(world.engine)
    page = called_by_writer().run(activities.load_outstanding, LoadOutstanding(Part.REST, 0))
    assert [ref[0] for ref in page.refs] == [ids[0], ids[2]]
    assert not page.more


@pytest.mark.parametrize(
    ("part", "after_id", "pauses"),
    [(Part.REST, 0, 0), (Part.REST, 1, 1), (Part.ENTITY, 1, 1), (Part.EMERGENCIES, 1, 0)],
)
def test_further_pages_of_a_backlog_are_read_after_a_pause_but_emergencies_are_not(
    world: MariaWorld, part: Part, after_id: int, pauses: int
) -> None:
    rests = list[float]()
    activities = RecordingActivities(world.engine, rest=rests.append)
    page = LoadOutstanding(part, after_id, EntityKey("unit", "u1") if part is Part.ENTITY else None)
    called_by_writer().run(activities.load_outstanding, page)
    assert rests == [PAGE_PAUSE_SECONDS] * pauses


def test_no_more_than_three_rest_at_once_since_each_holds_a_slot_of_all_hosts(world: MariaWorld) -> None:
    rests = list[float]()
    page = LoadOutstanding(Part.REST, 1)

    def while_resting(seconds: float) -> None:
        rests.append(seconds)
        called_by_writer().run(activities.load_outstanding, page)

    activities = RecordingActivities(world.engine, rest=while_resting)
    called_by_writer().run(activities.load_outstanding, page)
    assert rests == [PAGE_PAUSE_SECONDS] * 3


def test_a_sweep_tells_what_stops_the_writer(world: MariaWorld) -> None:
    activities, run = RecordingActivities(world.engine), called_by_writer().run
    page = run(activities.sweep, Sweep(0))
    assert (page.paused, page.halted) == (None, False)
    run(activities.record_act, messages.OperatorAct(HOST, "pause", "ana", "lunch", decision_id="1"))
    run(activities.record_act, messages.OperatorAct(HOST, "halt", "writer", "foreign", decision_id="2"))
    page = run(activities.sweep, Sweep(0))
    assert (page.paused, page.halted) == (["ana", "lunch", 0], True)


END_MS = 1_800_000_000_000


def test_the_end_of_a_pause_is_read_from_the_audit_and_recorded_there_as_a_resume_by_the_writer(
    world: MariaWorld,
) -> None:
    activities, run = RecordingActivities(world.engine), called_by_writer().run
    run(activities.record_act, messages.OperatorAct(HOST, "pause", "ana", "lunch", decision_id="1", until_ms=END_MS))
    assert run(activities.sweep, Sweep(0)).paused == ["ana", "lunch", END_MS]
    end = messages.OperatorAct(HOST, END_PAUSE, "writer", "over", decision_id="2", until_ms=END_MS)
    for _ in range(2):  # the answer was lost
        assert run(activities.record_act, end).refused == ""
    found = world.read("SELECT action, operator, channel, verified FROM operator_audit ORDER BY id")
    assert found == [("pause", "ana", "temporal", 0), ("resume", "writer", "writer", None)]
    assert run(activities.sweep, Sweep(0)).paused is None


def test_the_end_of_a_pause_does_not_end_a_later_one(world: MariaWorld) -> None:
    activities, run = RecordingActivities(world.engine), called_by_writer().run
    for number, action, until_ms in ((1, "pause", END_MS), (2, "resume", 0), (3, "pause", 2 * END_MS)):
        act = messages.OperatorAct(HOST, action, "ana", "x", decision_id=str(number), until_ms=until_ms)
        run(activities.record_act, act)
    end = messages.OperatorAct(HOST, END_PAUSE, "writer", "over", decision_id="4", until_ms=END_MS)
    assert "paused anew" in run(activities.record_act, end).refused
    assert run(activities.sweep, Sweep(0)).paused == ["ana", "x", 2 * END_MS]


def test_how_long_a_pause_lasts_is_bound_by_the_signature(world: MariaWorld) -> None:
    key = "k" * 32
    activities = RecordingActivities(world.engine, act_keys=(key,))
    act = messages.OperatorAct(HOST, "pause", "ana", "lunch", channel="api", for_seconds=60)
    signature = sign(act, key, now_ms=time.time_ns() // 1_000_000, nonce="n1")
    longer = replace(act, signature=signature, decision_id="1", for_seconds=6000)
    called_by_writer().run(activities.record_act, longer)
    assert world.read("SELECT verified, JSON_VALUE(detail, '$.not_verified') FROM operator_audit") == [
        (0, "the signature does not fit")
    ]


def test_a_decision_of_the_writer_is_kept_and_refused_ones_say_why(world: MariaWorld) -> None:
    activities = RecordingActivities(world.engine)
    halt = messages.OperatorAct(HOST, "halt", "writer", "invariant violated: a test")
    assert called_by_writer().run(activities.record_act, halt).refused == ""
    assert world.halted() == "invariant violated: a test"
    refused = called_by_writer().run(activities.record_act, messages.OperatorAct(HOST, "dance", "ada", "why not"))
    assert "'dance'" in refused.refused
    assert world.read("SELECT action, operator FROM operator_audit") == [("halt", "writer")]


def test_a_signed_act_is_verified_once_and_its_repetition_is_not(world: MariaWorld) -> None:
    key = "k" * 32
    activities = RecordingActivities(world.engine, act_keys=(key,))
    act = messages.OperatorAct(HOST, "pause", "ana", "lunch", channel="api")
    signature = sign(act, key, now_ms=time.time_ns() // 1_000_000, nonce="n1")
    for decision_id in ("1", "1", "2"):
        again = replace(act, signature=signature, decision_id=decision_id)
        assert called_by_writer().run(activities.record_act, again).refused == ""
    found = "SELECT channel, verified, JSON_VALUE(detail, '$.not_verified') FROM operator_audit ORDER BY id"
    assert world.read(found) == [("api", 1, None), ("temporal", 0, "its signature was used before")]


def test_an_unsigned_act_is_carried_out_and_its_name_is_not_believed(world: MariaWorld) -> None:
    activities = RecordingActivities(world.engine, act_keys=("k" * 32,))
    forged = messages.OperatorAct(HOST, "pause", "ana", "lunch", channel="api")
    assert called_by_writer().run(activities.record_act, forged).refused == ""
    found = "SELECT operator, channel, verified, JSON_VALUE(detail, '$.not_verified') FROM operator_audit"
    assert world.read(found) == [("ana", "temporal", 0, "not signed")]


def test_a_resolve_has_more_time_than_a_statement_has_otherwise_and_heartbeats(
    world: MariaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OldHost lost 4,000 operations: reopening them takes longer than the engine here allows."""
    world.execute(
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        "priority_class, source, created_at, outcome, processed_at, nonce) SELECT %s, CONCAT('k', seq), '', 'unit', "
        "CONCAT('u', seq), 'e', '{}', 'TXN', 'test', UTC_TIMESTAMP(6), 'APPLIED', UTC_TIMESTAMP(6), seq "
        "FROM seq_1_to_4000",
        HOST,
    )
    world.execute(
        "INSERT INTO nonce_requests (host, nonce, change_id, idempotency_key, body, status, sends, epoch, created_at, "
        "sent_at, completed_at) SELECT host, nonce, id, idempotency_key, '{}', 'APPLIED', 1, 1, created_at, "
        "created_at, created_at FROM outbox_events"
    )
    world.execute(
        "INSERT INTO nonce_ledger (host, epoch, next_nonce, last_applied_nonce, halted, halted_expected_nonce) "
        "VALUES (%s, 1, 4001, 4000, 'it went back', 1)",
        HOST,
    )
    url = world.engine.url.render_as_string(hide_password=False)
    hurried = create_engine(url, statement_seconds=0.05)
    decision = messages.OperatorAct(HOST, "resolve", "ada", "a test", mode="resend")

    def expects_1(_host: str) -> Count:
        return Count(1)

    with pytest.raises(StatementTooSlow):
        called_by_writer().run(RecordingActivities(hurried, count=expects_1).record_act, decision)
    activities = RecordingActivities(hurried, count=expects_1, unhurried=unhurried)
    monkeypatch.setattr(records, "HEARTBEAT_SECONDS", 0.01)
    beats: list[object] = []
    environment = called_by_writer()
    environment.on_heartbeat = lambda *details: beats.append(details)
    decided = environment.run(activities.record_act, decision)
    hurried.dispose()
    assert beats
    assert decided.message == "4000 operations from nonce 1 on are sent again as they were"


ODD = ["\ud800", "ana\udfff", "\x00", "\x1b[2J", "🏠", "x" * 5000]


@pytest.mark.parametrize("text", ODD, ids=ascii)
@pytest.mark.parametrize("action", ["halt", "pause", "resume", "flush", "retry", "discard", "resolve", "dance"])
def test_no_text_of_an_operator_breaks_a_decision(world: MariaWorld, action: str, text: str) -> None:
    dead = world.record()
    world.execute("UPDATE outbox_events SET outcome = 'DEAD', processed_at = UTC_TIMESTAMP(6) WHERE id = %s", dead)
    activities = RecordingActivities(world.engine)
    if action == "resolve":
        called_by_writer().run(activities.record_act, messages.OperatorAct(HOST, "halt", "writer", text))
    mode = "resend" if action == "resolve" else text
    decision = messages.OperatorAct(HOST, action, text, text, dead, mode)
    decided = called_by_writer().run(activities.record_act, decision)
    assert decided.refused.encode() == (b"'dance' is not an action that can be recorded" if action == "dance" else b"")
    acts = world.read("SELECT operator, reason FROM operator_audit WHERE action = %s", action)
    assert len(acts) == (action != "dance")
    assert all(shown.isprintable() for act in acts for shown in act)


@pytest.mark.parametrize("change_id", [10**400, 2**63, 0, -1, -(2**63)], ids=["10^400", "2^63", "0", "-1", "-2^63"])
@pytest.mark.parametrize("action", ["pause", "retry", "discard"])
def test_no_number_of_an_operator_breaks_a_decision(world: MariaWorld, action: str, change_id: int) -> None:
    decision = messages.OperatorAct(HOST, action, "ana", "a test", change_id)
    decided = called_by_writer().run(RecordingActivities(world.engine).record_act, decision)
    assert ("there is no change" in decided.refused) == (action != "pause")
    assert world.read("SELECT change_id FROM operator_audit") == ([(None,)] if action == "pause" else [])


def test_one_whose_unit_somebody_holds_is_left_and_those_behind_it_are_recorded(world: MariaWorld) -> None:
    changes = [GOOD | {"entity_id": unit, "payload": {"n": n}} for n, unit in enumerate(("held", "held", "free"))]
    submit(world, GOOD | {"entity_id": "held"})
    activities = SubmissionActivities(world.engine)
    items = [messages.Submission(change, f"key-{number}") for number, change in enumerate(changes)]
    request = messages.Submissions(items, may_leave=True)
    with world.engine.connect() as other:
        other.exec_driver_sql("SELECT * FROM units WHERE id = 'held' FOR UPDATE")
        first = called_by_writer().run(activities.record_submissions, request)
    again = called_by_writer().run(activities.record_submissions, request)
    assert [one.left for one in first] == [True, True, False]
    assert [one.left for one in again] == [False, False, False]
    assert again[2].change_id == first[2].change_id
    assert again[0].change_id < again[1].change_id


LONG = KINDS["writes-refused"].opens_after_s


def test_people_are_told_once_of_what_is_left_for_half_a_minute(world: MariaWorld) -> None:
    """Nobody else can be: a signal has no answer."""
    submit(world, GOOD | {"entity_id": "held"})
    now = [0.0]
    activities = SubmissionActivities(world.engine, left=LeftSubmissions(lambda: now[0]))
    items = [messages.Submission(GOOD | {"entity_id": "held", "payload": {"n": n}}, f"key-{n}") for n in range(3)]
    request = messages.Submissions(items, may_leave=True)
    alerts = "SELECT kind, occurrences, is_open, message FROM alerts"
    told = []
    with world.engine.connect() as other:
        other.exec_driver_sql("SELECT * FROM units WHERE id = 'held' FOR UPDATE")
        for now[0] in (0.0, LONG - 1, LONG, LONG + 60):
            called_by_writer().run(activities.record_submissions, request)
            told.append(world.read(alerts))
    called_by_writer().run(activities.record_submissions, request)
    reason = f"Changes that applications signalled could not be recorded for half a minute: {LOCKED}"
    once = [("writes-refused", 3, 1, reason)]
    assert told == [[], [], once, once]
    assert world.read("SELECT is_open FROM alerts") == [(None,)], "all of them are recorded now"


def test_people_are_told_afterwards_of_what_was_left_for_minutes_and_is_recorded_now(world: MariaWorld) -> None:
    """While the database is away, no alert can be stored."""
    submit(world, GOOD | {"entity_id": "held"})
    now = [0.0]
    activities = SubmissionActivities(world.engine, left=LeftSubmissions(lambda: now[0]))
    request = messages.Submissions([messages.Submission(GOOD | {"entity_id": "held"}, "key")], may_leave=True)
    with world.engine.connect() as other:
        other.exec_driver_sql("SELECT * FROM units WHERE id = 'held' FOR UPDATE")
        called_by_writer().run(activities.record_submissions, request)
    now[0] = LONG
    called_by_writer().run(activities.record_submissions, request)
    assert world.read("SELECT kind, occurrences, is_open FROM alerts") == [("writes-refused", 1, None)]


def test_people_are_told_afterwards_why_it_was(world: MariaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DatabaseUnavailable("the account is locked (MariaDB 4151)")

    now = [0.0]
    activities = SubmissionActivities(world.engine, left=LeftSubmissions(lambda: now[0]))
    request = messages.Submissions([messages.Submission(GOOD, "key")], may_leave=True)
    with monkeypatch.context() as locked:
        locked.setattr(submissions, "record_or_leave", refuse)
        with pytest.raises(DatabaseUnavailable):
            called_by_writer().run(activities.record_submissions, request)
    now[0] = LONG
    called_by_writer().run(activities.record_submissions, request)
    ((message,),) = world.read("SELECT message FROM alerts")
    assert message.endswith("for half a minute: the account is locked (MariaDB 4151)")


def test_people_are_told_of_signals_that_the_database_refuses(
    world: MariaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise DatabaseUnavailable("table full (usually its disk) (MariaDB 1114)")

    monkeypatch.setattr(submissions, "record_or_leave", refuse)
    now = [0.0]
    activities = SubmissionActivities(world.engine, left=LeftSubmissions(lambda: now[0]))
    request = messages.Submissions([messages.Submission(GOOD, "key")], may_leave=True)
    for now[0] in (0.0, LONG):
        with pytest.raises(DatabaseUnavailable):
            called_by_writer().run(activities.record_submissions, request)
    ((message,),) = world.read("SELECT message FROM alerts WHERE kind = 'writes-refused'")
    assert message.endswith("for half a minute: table full (usually its disk) (MariaDB 1114)")


@pytest.mark.parametrize(
    "held",
    [
        "units FORCE INDEX (PRIMARY) WHERE host = 'oldhost' AND id",
        # The gaps, too, so no change of these units can be inserted.
        (
            "outbox_events FORCE INDEX (ix_outbox_events_entity) "
            "WHERE host = 'oldhost' AND entity_type = 'unit' AND entity_id"
        ),
    ],
    ids=["units", "changes"],
)
def test_however_many_of_a_batch_somebody_holds_it_waits_for_a_few_and_records_the_others(
    world: MariaWorld, mariadb_server: PrivateMariaDB, held: str
) -> None:
    units = [f"held-{number}" for number in range(10)]
    for unit in (*units, "free", "gap"):
        world.record(unit)
    items = [messages.Submission(GOOD | {"entity_id": unit}, unit) for unit in (*units, "free")]
    with world.engine.connect().execution_options(isolation_level="REPEATABLE READ") as other:
        other.exec_driver_sql(f"SELECT id FROM {held} LIKE 'held%%' FOR UPDATE")
        before = mariadb_server.row_lock("waits")
        answers = record_or_leave(world.engine, HOST, items, set())
        waits = mariadb_server.row_lock("waits") - before
    assert [one.left for one in answers] == [True] * 10 + [False]
    # Each ended after a second, so a slow machine has fewer.
    assert 1 <= waits <= LOCK_WAITS_SECONDS_MAX + 1


def test_whoever_uses_the_connection_next_waits_for_rows_as_long_as_before(world: MariaWorld) -> None:
    world.record("held")
    items = [messages.Submission(GOOD | {"entity_id": unit}, unit) for unit in ("held", "free")]
    with world.engine.connect() as other:
        other.exec_driver_sql("SELECT * FROM units WHERE id = 'held' FOR UPDATE")
        for item in items:
            record_or_leave(world.engine, HOST, [item], set())
            assert world.read("SELECT @@innodb_lock_wait_timeout") == [(LOCK_WAIT_SECONDS_MAX,)]


def test_after_a_reset_nothing_is_recorded_under_keys_that_may_be_anothers(world: MariaWorld) -> None:
    request = messages.Submissions([messages.Submission(GOOD, "key")], may_leave=True, original_run_id="older")
    (recorded,) = called_by_writer().run(SubmissionActivities(world.engine).record_submissions, request)
    assert (recorded.left, recorded.after_reset) == (True, True)
    assert world.read("SELECT COUNT(*) FROM outbox_events") == [(0,)]


def test_a_name_that_the_database_can_not_even_be_asked_for_is_refused_and_holds_up_nothing(engine: Engine) -> None:
    bad = messages.Submission(GOOD | {"entity_type": "\ud800"}, "bad")
    good = messages.Submission(GOOD, "good")
    refused, recorded = record_or_leave(engine, HOST, [bad, good], set())
    assert refused.refused
    assert recorded.ref is not None
