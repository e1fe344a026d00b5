"""Recording a change: what is written, what is answered, and what a key means."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.errors import IdempotencyConflict, InvalidChange, TransactionNeeded, UnknownHost
from oldhost_sync.store.intake.batch_recorder import record_changes
from oldhost_sync.store.intake.rules import class_of, default_class, rules_of, seed_rules, set_rule
from tests.integration.store.writing import HOST, ON_MARIADB, change_sql, give_rule, record, recorded, register, rows

pytestmark = [pytest.mark.mariadb, pytest.mark.usefixtures("door")]


def test_a_change_is_in_shadow_and_outbox_after_one_commit(engine: Engine) -> None:
    answer = recorded(engine, payload={"status": "Clean", "note": 'é "quoted" \\ %s'}, idempotency_key="k-1")
    (unit,) = rows(engine, "SELECT * FROM units")
    (change,) = rows(engine, "SELECT * FROM outbox_events")
    assert answer.sync_status == "PENDING_SYNC"
    assert answer.change_id == change["id"] == unit["newest_change_id"]
    assert unit["status"] == "Clean"
    assert json.loads(unit["state"]) == {"unit_status_changed": {"status": "Clean", "note": 'é "quoted" \\ %s'}}
    assert json.loads(change["payload"]) == {"status": "Clean", "note": 'é "quoted" \\ %s'}
    assert (change["priority_class"], change["relayed_at"], change["processed_at"]) == ("LWW", None, None)
    assert answer.ref is not None
    assert answer.ref.accepted_at_ms == int(change["created_at"].replace(tzinfo=UTC).timestamp() * 1000)


def test_a_connection_that_commits_each_statement_is_refused(engine: Engine) -> None:
    autocommit = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection:
        with pytest.raises(TransactionNeeded, match="a change needs a transaction: "):
            record(connection)
        with pytest.raises(TransactionNeeded):
            record_changes(connection, [], host=HOST)
    autocommit.dispose()
    assert rows(engine, "SELECT id FROM outbox_events") == []


def test_a_time_may_be_text_as_in_every_other_way_to_submit(engine: Engine) -> None:
    due = "2027-03-04T05:06:07+02:00"
    recorded(engine, occurred_at=due)
    (change,) = rows(engine, "SELECT occurred_at FROM outbox_events")
    assert change["occurred_at"].replace(tzinfo=UTC) == datetime.fromisoformat(due)
    with pytest.raises(InvalidChange, match="a time with a time zone"):
        recorded(engine, not_before="tomorrow")


def test_nothing_is_written_when_the_application_rolls_back(engine: Engine) -> None:
    with engine.connect() as connection:
        record(connection)
        connection.rollback()
    assert rows(engine, "SELECT id FROM units") == []
    assert rows(engine, "SELECT id FROM outbox_events") == []


def test_the_state_keeps_the_last_payload_of_each_event_type(engine: Engine) -> None:
    recorded(engine, payload={"status": "Dirty"})
    recorded(engine, event_type="unit_details_changed", payload={"name": "Sea view", "property_id": "P-1"})
    last = recorded(engine, payload={"status": "Clean"})
    (unit,) = rows(engine, "SELECT * FROM units")
    assert json.loads(unit["state"]) == {
        "unit_status_changed": {"status": "Clean"},
        "unit_details_changed": {"name": "Sea view", "property_id": "P-1"},
    }
    assert (unit["name"], unit["property_id"], unit["status"]) == ("Sea view", "P-1", "Clean")
    assert unit["newest_change_id"] == last.change_id


def test_an_entity_of_another_type_has_its_own_row(engine: Engine) -> None:
    recorded(engine, entity_type="booking", entity_id="B-7", event_type="booking.created", payload={"guest": "x"})
    (entity,) = rows(engine, "SELECT * FROM entities")
    assert (entity["entity_type"], entity["id"]) == ("booking", "B-7")
    assert json.loads(entity["state"]) == {"booking.created": {"guest": "x"}}
    assert rows(engine, "SELECT id FROM units") == []


def test_hosts_share_nothing(engine: Engine) -> None:
    register(engine, "other")
    first = recorded(engine, idempotency_key="same")
    second = recorded(engine, host="other", idempotency_key="same", payload={"status": "Dirty"})
    assert second.change_id != first.change_id
    assert len(rows(engine, "SELECT id FROM units")) == 2


# ---------------------------------------------------------------------------------------------------- idempotency keys


def test_same_key_and_body_get_the_first_answer(engine: Engine) -> None:
    first = recorded(engine, idempotency_key="k-1", payload={"status": "Clean", "n": 1})
    recorded(engine, payload={"status": "Dirty"})
    again = recorded(engine, idempotency_key="k-1", payload={"n": 1, "status": "Clean"})
    assert again.duplicate
    assert not first.duplicate
    assert (again.change_id, again.ref, again.accepted_at) == (first.change_id, first.ref, first.accepted_at)
    assert rows(engine, "SELECT status FROM units") == [{"status": "Dirty"}]


def test_same_key_with_another_body_is_a_conflict_and_the_transaction_goes_on(engine: Engine) -> None:
    recorded(engine, idempotency_key="k-1")
    with engine.begin() as connection:
        with pytest.raises(IdempotencyConflict, match="k-1"):
            record(connection, idempotency_key="k-1", entity_id="102")
        record(connection, entity_id="103")
    assert [row["id"] for row in rows(engine, "SELECT id FROM units ORDER BY id")] == ["101", "103"]


def test_a_repeated_change_says_how_far_it_got(engine: Engine) -> None:
    recorded(engine, idempotency_key="k-1")
    change_sql(engine, "UPDATE outbox_events SET processed_at = CURRENT_TIMESTAMP, outcome = 'APPLIED', nonce = 7")
    again = recorded(engine, idempotency_key="k-1")
    assert (again.outcome, again.nonce) == ("APPLIED", 7)


def test_a_key_is_used_twice_within_one_transaction(engine: Engine) -> None:
    with engine.begin() as connection:
        first = record(connection, idempotency_key="k-1")
        again = record(connection, idempotency_key="k-1")
    assert again.duplicate
    assert again.change_id == first.change_id


def test_an_invalid_change_writes_nothing(engine: Engine) -> None:
    with engine.begin() as connection, pytest.raises(InvalidChange):
        record(connection, payload={"x": float("nan")})
    assert rows(engine, "SELECT id FROM units") == []


# ----------------------------------------------------------------------------------------------------------- the class


def test_the_class_comes_from_the_servers_rule(engine: Engine) -> None:
    classes = {
        event_type: recorded(engine, event_type=event_type, payload={}).ref
        for event_type in ("unit_status_changed", "guest_locked_out", "booking_created", "never_heard_of")
    }
    assert {name: ref.priority_class.value for name, ref in classes.items() if ref} == {
        "unit_status_changed": "LWW",
        "guest_locked_out": "EMERGENCY",
        "booking_created": "TXN",
        "never_heard_of": "TXN",
    }


def test_a_rule_that_was_changed_holds_from_the_next_change_on(engine: Engine) -> None:
    recorded(engine)
    give_rule(engine, "minibar_empty", PriorityClass.LWW)
    give_rule(engine, "unit_status_changed", PriorityClass.TXN)
    for event_type, expected in (("minibar_empty", "LWW"), ("unit_status_changed", "TXN")):
        ref = recorded(engine, event_type=event_type).ref
        assert ref is not None
        assert ref.priority_class.value == expected
    register(engine, "other")
    other = recorded(engine, host="other").ref
    assert other is not None
    assert other.priority_class is default_class("unit_status_changed")


@ON_MARIADB
def test_the_rules_in_force_are_those_that_were_set_and_the_defaults(engine: Engine) -> None:
    with engine.begin() as connection:
        set_rule(connection, HOST, "minibar_empty", PriorityClass.LWW)
        set_rule(connection, HOST, "unit_status_changed", PriorityClass.TXN)
        seed_rules(connection, HOST)
        assert class_of(connection, HOST, "unit_status_changed") is PriorityClass.TXN
        assert rules_of(connection, HOST)["minibar_empty"] is PriorityClass.LWW


# ------------------------------------------------------------------------------------------------------------ the order


def test_trap_19_client_clocks_do_not_decide_the_order(engine: Engine) -> None:
    future = datetime.now(UTC) + timedelta(days=300)
    first = recorded(engine, payload={"status": "from a fast clock"}, occurred_at=future)
    second = recorded(engine, payload={"status": "from a right clock"}, occurred_at=datetime.now(UTC))
    assert first.change_id is not None
    assert second.change_id is not None
    assert first.change_id < second.change_id
    (unit,) = rows(engine, "SELECT status, newest_change_id FROM units")
    assert unit == {"status": "from a right clock", "newest_change_id": second.change_id}
    kept = rows(engine, "SELECT occurred_at FROM outbox_events ORDER BY id")[0]["occurred_at"]
    assert kept == future.replace(tzinfo=None)
    assert second.accepted_at < future


@ON_MARIADB
def test_accepted_at_is_utc_whatever_zone_the_application_connection_has(engine: Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("SET time_zone = '+09:00'")
        answer = record(connection)
        connection.commit()
        now = connection.exec_driver_sql("SELECT UTC_TIMESTAMP(6)").scalar_one()
        connection.exec_driver_sql("SET time_zone = '+00:00'")
    assert abs(now.replace(tzinfo=UTC) - answer.accepted_at) < timedelta(minutes=1)


@pytest.mark.parametrize("not_before", [None, datetime.now(UTC) + timedelta(hours=1)], ids=["now", "later"])
def test_a_host_that_is_not_registered_is_refused_and_nothing_is_written(
    engine: Engine, not_before: datetime | None
) -> None:
    """No relay looks for it: the change would wait for ever, and nobody would hear of it."""
    with engine.begin() as connection, pytest.raises(UnknownHost, match="no host 'nrth', only oldhost"):
        record(connection, host="nrth", not_before=not_before)
    written = [rows(engine, f"SELECT id FROM {table}") for table in ("outbox_events", "scheduled_changes", "units")]
    assert written == [[], [], []]


def test_an_event_type_without_a_rule_is_no_reason_to_refuse_a_registered_host(engine: Engine) -> None:
    ref = recorded(engine, event_type="never_heard_of").ref
    assert ref is not None
    assert ref.priority_class is PriorityClass.TXN
