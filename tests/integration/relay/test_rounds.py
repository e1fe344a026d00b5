"""One round after the other, with the clock in hand: what the relay claims, signals, marks, and holds back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from oldhost_sync.policy import limits
from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.limits import RELAY_BACKLOG_CHANGES, RELAY_CALM_CHANGES_MAX
from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.relay.duty import RelayPace
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.relay import Relay, SignalFailed
from oldhost_sync.relay.retention import Pruner
from oldhost_sync.relay.scheduler import Scheduler
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.errors import StatementRefused
from oldhost_sync.store.outbox import outstanding_changes
from oldhost_sync.telemetry import RelayMetrics
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.relay.listening import Listener, lease_holder
from tests.integration.store.writing import HOST, change_sql, recorded, register, rows, write
from workflows.messages import EnqueueBatch

pytestmark = pytest.mark.mariadb
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def relay_of(engine: Engine, listener: Listener, owner: str = "one", **pace: Any) -> Relay:
    return Relay(Transactions(engine), listener, HOST, owner=owner, pace=RelayPace(**pace))


def scheduler_of(engine: Engine, owner: str = "one") -> Scheduler:
    transactions = Transactions(engine)
    return Scheduler(transactions, Leadership(transactions, HOST, owner, 5.0), RelayPace())


def pruner_of(engine: Engine, **pace: Any) -> Pruner:
    transactions = Transactions(engine)
    return Pruner(transactions, Leadership(transactions, HOST, "one", 5.0), RelayPace(**pace), Conditions())


def add_relayed(engine: Engine, count: int) -> None:
    """Changes that the writer has and that have no fate."""
    write(engine, "relayed")
    copied = "host, entity_type, entity_id, event_type, payload, request_hash, priority_class, created_at"
    change_sql(
        engine,
        f"INSERT INTO outbox_events (idempotency_key, {copied}) "
        f"SELECT CONCAT('key-', seq), {copied} FROM outbox_events, seq_2_to_{count}",
    )
    change_sql(engine, "UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6)")


def unrelayed(engine: Engine) -> list[int]:
    return [row["id"] for row in rows(engine, "SELECT id FROM outbox_events WHERE relayed_at IS NULL ORDER BY id")]


def test_changes_go_in_id_order_and_are_marked(engine: Engine) -> None:
    ids = [write(engine, f"u{number}") for number in range(3)]
    listener = Listener()
    done = run(relay_of(engine, listener).run_once(0.0))
    assert listener.batches == [ids]
    assert [ref.change_id for ref in done.relayed] == ids
    assert unrelayed(engine) == []


def test_nothing_new_is_no_signal(engine: Engine) -> None:
    listener = Listener()
    assert run(relay_of(engine, listener).run_once(0.0)).active
    assert listener.batches == []


def test_an_ordinary_change_waits_for_the_next_signal_and_an_emergency_does_not(engine: Engine) -> None:
    listener = Listener()
    relay = relay_of(engine, listener)

    async def rounds() -> None:
        first = write(engine, "first")
        await relay.run_once(0.0)
        ordinary, emergency = write(engine, "a"), write(engine, "b", "guest_locked_out")
        await relay.run_once(0.1)
        assert listener.batches == [[first], [emergency]]
        await relay.run_once(0.9)
        assert listener.batches == [[first], [emergency]]
        await relay.run_once(2.0)
        assert listener.batches == [[first], [emergency], [ordinary]]

    run(rounds())


@pytest.mark.parametrize(("at_writer", "interval"), [(RELAY_BACKLOG_CHANGES - 2, 2.0), (RELAY_BACKLOG_CHANGES, 4.0)])
def test_few_changes_wait_longer_for_the_next_signal_the_more_the_writer_has(
    engine: Engine, at_writer: int, interval: float
) -> None:
    add_relayed(engine, at_writer)
    listener = Listener()
    relay = relay_of(engine, listener)

    async def rounds() -> None:
        first = write(engine, "first")
        await relay.run_once(0.0)
        few = [write(engine, f"u{number}") for number in range(RELAY_CALM_CHANGES_MAX - 1)]
        await relay.run_once(1.0)
        await relay.run_once(interval - 0.1)
        assert listener.batches == [[first]]
        await relay.run_once(interval)
        assert listener.batches == [[first], few]

    run(rounds())


@pytest.mark.parametrize("at_writer", [1, RELAY_BACKLOG_CHANGES])
def test_a_burst_waits_a_second_for_its_signal_also_if_it_begins_after_a_calm_one(
    engine: Engine, at_writer: int
) -> None:
    add_relayed(engine, at_writer)
    listener = Listener()
    relay = relay_of(engine, listener, calm_interval_s=4.0)

    async def rounds() -> None:
        first = write(engine, "first")
        await relay.run_once(0.0)
        second = write(engine, "second")
        await relay.run_once(1.0)
        burst = [write(engine, f"u{number}") for number in range(RELAY_CALM_CHANGES_MAX)]
        await relay.run_once(1.9)
        assert listener.batches == [[first]]
        await relay.run_once(2.0)
        assert listener.batches == [[first], [second, *burst]]

    run(rounds())


def test_a_full_batch_is_followed_at_once(engine: Engine) -> None:
    ids = [write(engine, f"u{number}") for number in range(5)]
    listener = Listener()
    relay = relay_of(engine, listener, batch_refs=2)

    async def rounds() -> None:
        for now in (0.0, 0.1, 0.2):
            await relay.run_once(now)

    run(rounds())
    assert listener.batches == [ids[:2], ids[2:4], ids[4:]]


def test_an_emergency_is_signalled_before_an_older_backlog_of_others(engine: Engine) -> None:
    backlog = [write(engine, f"u{number}") for number in range(5)]
    older = write(engine, "x")
    emergency = write(engine, "x", "guest_locked_out")
    listener = Listener()
    run(relay_of(engine, listener, batch_refs=3).run_once(0.0))
    assert listener.batches == [[older, emergency], backlog[:3]]


def test_a_signal_never_carries_more_than_the_limit(engine: Engine) -> None:
    ids = [write(engine, "x") for _ in range(7)] + [write(engine, "x", "guest_locked_out")]
    listener = Listener()
    run(relay_of(engine, listener, batch_refs=3).run_once(0.0))
    assert listener.batches == [ids[:3], ids[3:6], ids[6:]]


def test_trap_17_signals_refused_are_sent_again_and_stay_far_below_the_size_limit(engine: Engine) -> None:
    ids = [write(engine, f"u{number}") for number in range(3)]
    listener = Listener()
    relay = relay_of(engine, listener)

    async def rounds() -> None:
        listener.failing = "before"
        with pytest.raises(SignalFailed, match="no Temporal"):
            await relay.run_once(0.0)
        assert unrelayed(engine) == ids
        listener.failing = ""
        await relay.run_once(1.0)
        assert unrelayed(engine) == []

    run(rounds())
    assert listener.batches == [ids]
    longest = ChangeRef(2**62, PriorityClass.EMERGENCY, "t" * 64, "x" * 128, "e" * 64, 2**42, "p" * 128)
    batch = EnqueueBatch.of([longest] * limits.RELAY_BATCH_REFS_MAX)
    assert len(str(batch)) < 300_000


def test_a_lost_acknowledgement_means_the_same_batch_again(engine: Engine) -> None:
    ids = [write(engine, "a"), write(engine, "b")]
    listener = Listener()
    relay = relay_of(engine, listener)

    async def rounds() -> None:
        listener.failing = "after"
        with pytest.raises(SignalFailed):
            await relay.run_once(0.0)
        listener.failing = ""
        await relay.run_once(1.0)

    run(rounds())
    assert listener.batches == [ids, ids]
    assert unrelayed(engine) == []


def test_nothing_is_marked_before_the_acknowledgement(engine: Engine) -> None:
    ids = [write(engine, "a")]
    seen: list[list[int]] = []

    async def signal(_: list[ChangeRef]) -> None:
        seen.append(unrelayed(engine))

    run(Relay(Transactions(engine), signal, HOST, owner="one").run_once(0.0))
    assert seen == [ids]
    assert unrelayed(engine) == []


def test_marks_that_fail_leave_the_changes_to_be_signalled_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [write(engine, "a")]
    listener = Listener()
    relay = relay_of(engine, listener)
    mark = outstanding_changes.mark_relayed

    def broken(*_: Any) -> int:
        raise OperationalError("UPDATE", {}, Exception(1815, "the database fails here"))

    async def rounds() -> None:
        monkeypatch.setattr(outstanding_changes, "mark_relayed", broken)
        with pytest.raises(StatementRefused):
            await relay.run_once(0.0)
        monkeypatch.setattr(outstanding_changes, "mark_relayed", mark)
        await relay.run_once(1.0)

    run(rounds())
    assert listener.batches == [ids, ids]


def test_a_row_that_somebody_holds_keeps_nobodys_emergency_waiting_and_is_signalled_once(
    engine: Engine, mariadb_server: PrivateMariaDB
) -> None:
    held = [write(engine, "a", "guest_locked_out") for _ in range(3)]
    listener = Listener()
    relay = relay_of(engine, listener, batch_refs=2)
    with engine.connect() as application:
        application.exec_driver_sql(f"SELECT id FROM outbox_events WHERE id <= {held[-1]} LOCK IN SHARE MODE")

        async def rounds() -> None:
            with mariadb_server.nobody_waits():
                for now in (0.0, 0.1, 1.2, 2.4):
                    await relay.run_once(now)
                other = await asyncio.to_thread(write, engine, "b", "guest_locked_out")
                assert [ref.change_id for ref in (await relay.run_once(2.5)).emergencies] == [other]
            assert unrelayed(engine) == held
            application.rollback()
            await relay.run_once(3.7)

        run(rounds())
    assert unrelayed(engine) == []
    assert sorted(change_id for batch in listener.batches for change_id in batch)[:3] == held
    assert sum(len(batch) for batch in listener.batches) == 4


# -------------------------------------------------------------------------------------------------------- backpressure


def test_only_emergencies_go_on_while_the_writer_is_full(engine: Engine) -> None:
    listener = Listener()
    relay = relay_of(engine, listener, unprocessed_max=3, count_interval_s=2.0)
    first = [write(engine, f"u{number}") for number in range(5)]

    async def rounds() -> None:
        assert not (await relay.run_once(0.0)).held_back
        assert listener.batches == [first[:3]]
        assert (await relay.run_once(2.0)).held_back
        older = write(engine, "x")
        emergency = write(engine, "x", "guest_locked_out")
        assert (await relay.run_once(4.0)).held_back
        assert listener.batches[1:] == [[older, emergency]]
        assert unrelayed(engine) == first[3:]
        change_sql(
            engine,
            "UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6), outcome = 'APPLIED' WHERE relayed_at IS NOT "
            "NULL",
        )
        await relay.run_once(6.0)
        assert listener.batches[2:] == [first[3:]]

    run(rounds())


def test_changes_held_behind_a_dead_letter_take_no_room(engine: Engine) -> None:
    dead = write(engine, "hot", "booking_created")
    change_sql(engine, f"UPDATE outbox_events SET outcome = 'DEAD', processed_at = UTC_TIMESTAMP(6) WHERE id = {dead}")
    for _ in range(5):
        write(engine, "hot", "booking_created")
    change_sql(engine, "UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6)")
    others = [write(engine, f"u{number}", "booking_created") for number in range(4)]
    listener = Listener()
    relay = relay_of(engine, listener, unprocessed_max=3)

    async def rounds() -> None:
        assert not (await relay.run_once(0.0)).held_back
        assert (await relay.run_once(2.0)).held_back

    run(rounds())
    assert listener.batches == [others[:3]]


# ------------------------------------------------------------------------------------------------------------ schedule


def plan(engine: Engine, unit: str, seconds_ago: int) -> None:
    recorded(engine, entity_id=unit, idempotency_key=unit, not_before=datetime.now(UTC) + timedelta(days=1))
    change_sql(
        engine,
        f"UPDATE scheduled_changes SET not_before = UTC_TIMESTAMP(6) - INTERVAL {seconds_ago} SECOND "
        f"WHERE idempotency_key = '{unit}'",
    )


def test_what_is_due_is_recorded_in_due_order_and_relayed(engine: Engine) -> None:
    plan(engine, "later", 1)
    plan(engine, "sooner", 100)
    listener = Listener()
    relay, scheduler = relay_of(engine, listener), scheduler_of(engine)

    async def rounds() -> None:
        assert await scheduler.record_due(0.0) == 2
        assert await scheduler.record_due(0.5) == 0
        await relay.run_once(0.5)

    run(rounds())
    found = rows(engine, "SELECT id, entity_id FROM outbox_events ORDER BY id")
    assert [row["entity_id"] for row in found] == ["sooner", "later"]
    assert listener.batches == [[row["id"] for row in found]]


def test_a_scheduled_change_that_cannot_be_recorded_is_set_aside_and_told_of(engine: Engine) -> None:
    plan(engine, "bad", 10)
    plan(engine, "good", 1)
    change_sql(engine, "UPDATE scheduled_changes SET idempotency_key = 'taken' WHERE entity_id = 'bad'")
    recorded(engine, entity_id="other", idempotency_key="free")
    change_sql(engine, "UPDATE outbox_events SET idempotency_key = 'taken' WHERE entity_id = 'other'")
    scheduler = scheduler_of(engine)

    async def rounds() -> None:
        await scheduler.record_due(0.0)
        assert await scheduler.record_due(1.0) == 0

    run(rounds())
    assert rows(engine, "SELECT entity_id FROM outbox_events WHERE entity_id = 'good'") != []
    assert [row["kind"] for row in rows(engine, "SELECT kind FROM alerts")] == ["schedule-failed"]


def test_a_unit_that_an_application_holds_delays_no_other_unit_s_scheduled_change(
    engine: Engine, mariadb_server: PrivateMariaDB
) -> None:
    recorded(engine, entity_id="held")
    plan(engine, "held", 10)
    plan(engine, "free", 1)
    scheduler = scheduler_of(engine)
    with engine.connect() as application:
        application.exec_driver_sql("SELECT 1 FROM units WHERE id = 'held' FOR UPDATE").all()
        with mariadb_server.nobody_waits():
            assert run(scheduler.record_due(0.0)) == 1
    assert run(scheduler_of(engine).record_due(0.0)) == 1
    found = rows(engine, "SELECT entity_id FROM outbox_events ORDER BY id")
    assert [row["entity_id"] for row in found] == ["held", "free", "held"]


def test_what_ended_long_ago_is_pruned_and_then_left_for_an_hour(engine: Engine) -> None:
    write(engine, "old")
    change_sql(
        engine,
        "UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6) - INTERVAL 100 DAY, outcome = 'APPLIED'",
    )
    assert run(pruner_of(engine).run_once(0.0)) == limits.RETENTION_INTERVAL_SECONDS
    assert rows(engine, "SELECT id FROM outbox_events") == []


# --------------------------------------------------------------------------------------------------------------- lease


def test_one_relay_is_active_and_the_other_takes_over_when_the_lease_runs_out(engine: Engine) -> None:
    first, second = Listener(), Listener()
    one, two = relay_of(engine, first, "one"), relay_of(engine, second, "two")

    async def rounds() -> None:
        assert (await one.run_once(0.0)).active
        assert not (await two.run_once(0.0)).active
        ids = [write(engine, "a", "guest_locked_out")]
        assert not (await two.run_once(10.0)).active
        change_sql(engine, "UPDATE relay_lease SET expires_at = UTC_TIMESTAMP(6)")
        assert (await two.run_once(20.0)).active
        assert (first.batches, second.batches) == ([], [ids])
        assert not (await one.run_once(20.0)).active

    run(rounds())
    with engine.connect() as connection:
        assert lease_holder(connection) == "two"


@pytest.mark.parametrize("stepped", ["- INTERVAL 2 HOUR", "+ INTERVAL 2 HOUR"])
def test_a_dead_relay_s_lease_holds_no_longer_when_the_database_s_clock_was_set(engine: Engine, stepped: str) -> None:
    """A clock that was set back makes the lease end "in the future", one set forward in the past."""
    change_sql(engine, f"INSERT INTO relay_lease VALUES ('oldhost', 'dead', UTC_TIMESTAMP(6) {stepped})")
    assert run(relay_of(engine, Listener()).run_once(0.0)).active


def test_a_relay_that_believes_itself_active_asks_again_in_time(engine: Engine) -> None:
    relay = relay_of(engine, Listener(), lease_s=6.0)

    async def rounds() -> None:
        assert (await relay.run_once(0.0)).active
        change_sql(engine, "UPDATE relay_lease SET owner = 'other', expires_at = UTC_TIMESTAMP(6) + INTERVAL 5 SECOND")
        assert (await relay.run_once(1.9)).active
        assert not (await relay.run_once(2.0)).active

    run(rounds())


def test_two_relays_at_once_lose_nothing_and_only_signal_twice(engine: Engine) -> None:
    ids = [write(engine, f"u{number}") for number in range(4)]
    first, second = Listener(), Listener()
    one, two = relay_of(engine, first, "one"), relay_of(engine, second, "two")

    async def rounds() -> None:
        await one.run_once(-100.0)
        change_sql(engine, "UPDATE outbox_events SET relayed_at = NULL")
        change_sql(engine, "UPDATE relay_lease SET expires_at = UTC_TIMESTAMP(6)")
        await two.run_once(0.0)
        change_sql(engine, "UPDATE outbox_events SET relayed_at = NULL")
        # The first has not looked at its lease again yet, as after being stopped for a while.
        one.leadership._leased_until = one.leadership._tried_at = 0.0
        await asyncio.gather(one.run_once(2.0), two.run_once(2.0))

    run(rounds())
    assert sorted(set(first.ids + second.ids)) == ids
    assert unrelayed(engine) == []


def test_hosts_have_a_relay_each(engine: Engine) -> None:
    register(engine, "other")
    mine, theirs = write(engine, "a"), write(engine, "a", host="other")
    listeners = Listener(), Listener()

    async def rounds() -> None:
        await Relay(Transactions(engine), listeners[0], HOST, owner="one").run_once(0.0)
        await Relay(Transactions(engine), listeners[1], "other", owner="one").run_once(0.0)

    run(rounds())
    assert (listeners[0].ids, listeners[1].ids) == ([mine], [theirs])


def test_metrics_tell_numbers_and_no_ids(engine: Engine) -> None:
    registry = CollectorRegistry()
    write(engine, "secret-unit")
    write(engine, "other-unit", "guest_locked_out")
    relay = Relay(Transactions(engine), Listener(), HOST, owner="one", metrics=RelayMetrics(registry))
    run(relay.run_once(0.0))
    page = generate_latest(registry).decode()
    assert 'oldhost_sync_relayed_changes_total{host="oldhost",priority_class="EMERGENCY"} 1.0' in page
    assert 'oldhost_sync_relay_signals_total{host="oldhost",kind="batch"} 1.0' in page
    assert "-unit" not in page
