from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from temporalio.testing import ActivityEnvironment

from activities.recording import RecordingActivities
from tests.conformance.maria_world import HOST, MariaWorld
from workflows import messages

pytestmark = pytest.mark.mariadb

GOOD = {"entity_type": "unit", "entity_id": "u1", "event_type": "checked_in", "payload": {"guest": 7}}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=6),
)
changes = st.dictionaries(
    st.sampled_from(
        ["entity_type", "entity_id", "event_type", "payload", "idempotency_key", "occurred_at", "not_before"]
    ),
    st.sampled_from(["unit", "u1", "checked_in", "2026-05-01T12:00:00Z", "x" * 200, "\x00", "\ud800"]) | json_values,
)


def submit(world: MariaWorld, change: Any, key: str = "fallback-1", **fields: Any) -> messages.Recorded:
    item = messages.Submission(change, key, **fields)
    activities = RecordingActivities(world.engine)
    (recorded,) = ActivityEnvironment().run(activities.record_submissions, messages.Submissions(HOST, [item]))
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
        ("not an object", "JSON object"),
        (None, "JSON object"),
        ({}, "missing fields"),
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
    assert world.read("SELECT kind FROM alerts") == [("submission_refused",)]
    assert submit(world, change).refused == recorded.refused
    assert world.read("SELECT COUNT(*) FROM alerts") == [(1,)]


def test_apply_now_takes_only_emergencies_and_keeps_no_row_of_what_it_refuses(world: MariaWorld) -> None:
    recorded = submit(world, GOOD, only_class="EMERGENCY")
    assert "not EMERGENCY" in recorded.refused
    assert world.read("SELECT COUNT(*) FROM outbox_events") == [(0,)]
    urgent = submit(world, GOOD | {"event_type": "guest_locked_out"}, only_class="EMERGENCY")
    assert urgent.ref is not None
    assert urgent.ref[1] == "EMERGENCY"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(change=changes | json_values, number=st.integers(0, 10**9))
def test_no_submission_breaks_the_recording(world: MariaWorld, change: Any, number: int) -> None:
    recorded = submit(world, change, f"fallback-{number}")
    assert recorded.refused or recorded.idempotency_key


def test_outstanding_changes_and_held_entities_are_loaded(world: MariaWorld) -> None:
    ids = [world.record(f"u{number}") for number in range(3)]
    world.execute("UPDATE outbox_events SET outcome = 'DEAD', processed_at = UTC_TIMESTAMP(6) WHERE id = %s", ids[1])
    activities = RecordingActivities(world.engine)
    page = ActivityEnvironment().run(activities.load_outstanding, messages.OutstandingPage(HOST))
    assert [ref[0] for ref in page.refs] == [ids[0], ids[2]]
    assert page.held == [["unit", "u1", [ids[1]]]]
    assert not page.more


def test_a_decision_of_the_writer_is_kept_and_refused_ones_say_why(world: MariaWorld) -> None:
    activities = RecordingActivities(world.engine)
    halt = messages.Decision(HOST, "halt", "writer", "invariant violated: a test")
    assert ActivityEnvironment().run(activities.record_decision, halt).refused == ""
    assert world.halted() == "invariant violated: a test"
    refused = ActivityEnvironment().run(activities.record_decision, messages.Decision(HOST, "dance", "ada", "why not"))
    assert "'dance'" in refused.refused
    assert world.read("SELECT action, operator FROM operator_audit") == [("halt", "writer")]
