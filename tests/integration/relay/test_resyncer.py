"""Sending states again: what is recorded, when, and what is left alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.drivers.mapping import payload_hash
from oldhost_sync.policy.changes import Outcome, PriorityClass
from oldhost_sync.policy.limits import RESYNC_INTERVAL_SECONDS, RESYNC_POLL_SECONDS
from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.policy.rules.resync import WAITING_MAX
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.scheduler import Resyncer
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.intake.resync import latest_resyncs, request_resync, results_of
from oldhost_sync.store.ledger.fates import Ending, record_fate
from tests.integration.store.writing import HOST, change_sql, record, recorded, rows

pytestmark = pytest.mark.mariadb


def resyncer_of(engine: Engine) -> Resyncer:
    transactions = Transactions(engine)
    return Resyncer(transactions, Leadership(transactions, HOST, "one", 5.0))


def applied(engine: Engine, **change: Any) -> int:
    """A change that OldHost has applied."""
    values: dict[str, Any] = {
        "entity_type": "unit", "entity_id": "101", "event_type": "unit_status_changed", "payload": {"status": "Clean"},
    } | change  # fmt: skip
    with engine.begin() as connection:
        done = record(connection, **values)
        assert done.change_id is not None
        assert done.ref is not None
        connection.exec_driver_sql("INSERT IGNORE INTO nonce_ledger (host) VALUES (%s)", (HOST,))
        named = {name: values[name] for name in ("entity_type", "entity_id", "event_type")}
        ending = Ending(
            done.change_id, **named, priority_class=done.ref.priority_class, outcome=Outcome.APPLIED,
            nonce=done.change_id, payload_hash=payload_hash(values["payload"]),
        )  # fmt: skip
        record_fate(connection, HOST, ending)
    return done.change_id


def ask(engine: Engine, *, property_id: str | None = None, unit_id: str | None = None) -> None:
    with engine.begin() as connection:
        request_resync(
            connection, HOST, property_id=property_id, unit_id=unit_id, operator=at_the_terminal("anna"), reason="drift"
        )


def rounds(engine: Engine, count: int = 6) -> float:
    """The pause after the last of them."""
    resyncer = resyncer_of(engine)

    async def run() -> float:
        for _ in range(count):
            pause = await resyncer.run_once(0.0)
        return pause

    return asyncio.run(run())


def again(engine: Engine) -> list[tuple[str, str]]:
    found = rows(engine, "SELECT entity_id, event_type FROM outbox_events WHERE source LIKE 'resync-%%' ORDER BY id")
    return [(each["entity_id"], each["event_type"]) for each in found]


def test_nothing_is_sent_again_unless_somebody_asks(engine: Engine) -> None:
    applied(engine)
    assert rounds(engine) == RESYNC_POLL_SECONDS
    assert again(engine) == []


def test_the_states_of_all_units_and_entities_are_recorded_once_as_the_shadow_has_them(engine: Engine) -> None:
    for entity in ("101", "102"):
        applied(engine, entity_id=entity)
    applied(engine, entity_type="rate_plan", entity_id="summer", event_type="rate_changed", payload={"rate": 90})
    ask(engine)
    assert rounds(engine) == RESYNC_POLL_SECONDS
    assert again(engine) == [("101", "unit_status_changed"), ("102", "unit_status_changed"), ("summer", "rate_changed")]
    new = rows(engine, "SELECT payload, priority_class FROM outbox_events WHERE entity_id = 'summer' ORDER BY id")
    assert new[0] == new[1]
    with engine.connect() as connection:
        (resync,) = latest_resyncs(connection, HOST, 5)
        assert (resync.recorded, resync.skipped, resync.finished_at is not None) == (3, 0, True)
        assert results_of(connection, resync) == {"WAITING": 3}


def test_the_ledger_does_not_find_it_equal_to_what_oldhost_has(engine: Engine) -> None:
    applied(engine)
    assert rows(engine, "SELECT payload_hash FROM applied_states")[0]["payload_hash"] == payload_hash(
        {"status": "Clean"}
    )
    ask(engine)
    rounds(engine)
    assert rows(engine, "SELECT payload_hash FROM applied_states")[0]["payload_hash"].strip(b"\0") == b""


def test_only_the_units_that_were_asked_for_are_sent_again(engine: Engine) -> None:
    for unit, of in (("101", "seaview"), ("102", "seaview"), ("103", "hill")):
        applied(engine, entity_id=unit, event_type="unit_details_changed", payload={"property_id": of})
    ask(engine, property_id="seaview")
    rounds(engine)
    assert [entity for entity, _ in again(engine)] == ["101", "102"]
    ask(engine, unit_id="103")
    rounds(engine)
    assert [entity for entity, _ in again(engine)] == ["101", "102", "103"]


def test_an_entity_of_which_something_waits_or_is_dead_is_left_alone(engine: Engine) -> None:
    for entity in ("101", "102", "103"):
        applied(engine, entity_id=entity)
    recorded(engine, entity_id="101", payload={"status": "Dirty"})
    dead = recorded(engine, entity_id="102", payload={"status": "Dirty"})
    change_sql(
        engine,
        f"UPDATE outbox_events SET outcome = 'DEAD', processed_at = UTC_TIMESTAMP(6) WHERE id = {dead.change_id}",
    )
    ask(engine)
    rounds(engine)
    assert [entity for entity, _ in again(engine)] == ["103"]
    assert rows(engine, "SELECT skipped FROM resyncs") == [{"skipped": 2}]


def test_it_waits_while_a_txn_or_an_emergency_waits(engine: Engine) -> None:
    applied(engine)
    waiting = recorded(engine, entity_id="900", event_type="booking_created", payload={"guest": 1})
    assert waiting.ref is not None
    assert waiting.ref.priority_class is PriorityClass.TXN
    ask(engine)
    assert rounds(engine) == RESYNC_INTERVAL_SECONDS
    assert again(engine) == []
    change_sql(
        engine,
        f"UPDATE outbox_events SET outcome = 'APPLIED', processed_at = UTC_TIMESTAMP(6) WHERE id = {waiting.change_id}",
    )
    rounds(engine)
    assert len(again(engine)) == 1


def test_a_txn_that_is_held_behind_a_dead_letter_does_not_hold_it_up(engine: Engine) -> None:
    applied(engine)
    for _ in range(2):
        recorded(engine, entity_id="900", event_type="booking_created", payload={"guest": 1})
    change_sql(
        engine,
        "UPDATE outbox_events SET outcome = 'DEAD', processed_at = UTC_TIMESTAMP(6) WHERE entity_id = '900' "
        "ORDER BY id LIMIT 1",
    )
    ask(engine)
    rounds(engine)
    assert len(again(engine)) == 1


def test_never_more_than_so_many_lww_changes_wait_because_of_it(engine: Engine) -> None:
    change_sql(
        engine,
        "INSERT INTO units (host, id, state, created_at, updated_at) SELECT 'oldhost', LPAD(seq, 4, '0'), "
        '\'{"unit_status_changed": {"status": "Clean"}}\', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM seq_1_to_150',
    )
    change_sql(
        engine,
        "INSERT INTO applied_states (host, entity_type, entity_id, event_type, change_id, payload_hash, nonce, "
        "applied_at) SELECT host, 'unit', id, 'unit_status_changed', 1, '', 1, UTC_TIMESTAMP(6) FROM units",
    )
    ask(engine)
    assert rounds(engine, WAITING_MAX + 5) == RESYNC_INTERVAL_SECONDS
    assert len(again(engine)) == WAITING_MAX
    change_sql(engine, "UPDATE outbox_events SET outcome = 'APPLIED', processed_at = UTC_TIMESTAMP(6)")
    rounds(engine, 52)
    assert len(again(engine)) == 150


def test_each_state_is_recorded_by_itself_and_has_its_pause(engine: Engine) -> None:
    for entity in ("101", "102"):
        for event_type, payload in (("unit_status_changed", {"status": "Clean"}), ("rate_changed", {"rate": 90})):
            applied(engine, entity_id=entity, event_type=event_type, payload=payload)
    ask(engine)
    assert rounds(engine, 1) == 2 * RESYNC_INTERVAL_SECONDS
    assert again(engine) == [("101", "unit_status_changed"), ("101", "rate_changed")]


def test_while_an_application_holds_an_entity_it_waits_and_then_sends_what_the_application_left(engine: Engine) -> None:
    applied(engine)
    ask(engine)
    with engine.connect() as holder:
        record(holder, payload={"status": "Dirty"})
        assert rounds(engine, 2) == RESYNC_INTERVAL_SECONDS
        holder.rollback()
    assert again(engine) == []
    rounds(engine)
    assert len(again(engine)) == 1


def test_two_relays_at_once_record_each_state_once(engine: Engine) -> None:
    applied(engine)
    ask(engine)
    one, other = resyncer_of(engine), resyncer_of(engine)

    async def both() -> None:
        await asyncio.gather(one.run_once(0.0), other.run_once(0.0))

    asyncio.run(both())
    rounds(engine)
    assert len(again(engine)) == 1


def test_asking_for_it_stands_in_the_audit(engine: Engine) -> None:
    applied(engine, event_type="unit_details_changed", payload={"property_id": "seaview"})
    ask(engine, property_id="seaview")
    (act,) = rows(engine, "SELECT action, operator, reason FROM operator_audit")
    assert act == {"action": "resync", "operator": "anna", "reason": "drift"}
