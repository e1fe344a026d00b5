"""The wait for something in the outbox: in MariaDB, one for all relays of a process, ended by what is new."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.relay.duty import RelayPace
from oldhost_sync.relay.relay import OutboxWatch, Relay, RelayState
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import DatabaseUnavailable
from oldhost_sync.store.outbox.outstanding_changes import Unrelayed
from tests.integration.relay.listening import Listener, statements, until
from tests.integration.relay.test_outages import running
from tests.integration.store.writing import change_sql, recorded, register, rows

pytestmark = pytest.mark.mariadb

HOSTS = [f"host-{number}" for number in range(3)]
# A statement that waits for so long is ended by its own limit (8 s): who gets an answer did not wait in vain.
FOR_EVER = RelayPace(wait_s=3600.0)
SOON = RelayPace(wait_s=0.05)
ANYTHING, EMERGENCY = Unrelayed(anything=True), Unrelayed(anything=True, emergency=True)


@dataclass(frozen=True)
class Stage:
    engine: Engine
    looks: Engine

    def watch(self, pace: RelayPace) -> OutboxWatch:
        return OutboxWatch(Transactions(self.engine, autocommit_engine=self.looks), "one", pace)

    def relay(self, host: str, listener: Listener, pace: RelayPace, watch: OutboxWatch | None = None) -> Relay:
        transactions = Transactions(self.engine, threads=2, autocommit_engine=self.looks)
        watch = watch or OutboxWatch(transactions, "one", pace)
        return Relay(transactions, listener, host, owner="one", watch=watch, pace=pace)

    def ordinary(self, host: str) -> None:
        recorded(self.engine, entity_id="u", host=host)

    def emergency(self, host: str) -> None:
        recorded(self.engine, entity_id="e", event_type="guest_locked_out", host=host)

    async def is_waiting(self) -> None:
        await until(lambda: "DO SLEEP" in str(rows(self.engine, "SHOW FULL PROCESSLIST")), "a statement that waits")


@pytest.fixture
def stage(engine: Engine) -> Iterator[Stage]:
    looks = create_engine(engine.url.render_as_string(hide_password=False), autocommit=True)
    register(engine, *HOSTS)
    for host in HOSTS:
        change_sql(engine, f"INSERT INTO relay_lease VALUES ('{host}', 'one', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)")
    yield Stage(engine, looks)
    looks.dispose()


def ended_by(stage: Stage, act: Callable[[], None], watch: OutboxWatch, host: str) -> Unrelayed:
    """What a wait says that `act` ended."""

    async def scenario() -> Unrelayed:
        waiting = asyncio.create_task(watch.poll(host, None))
        await stage.is_waiting()
        await asyncio.to_thread(act)
        return await waiting

    return asyncio.run(scenario())


@pytest.mark.parametrize(("act", "said"), [(Stage.ordinary, ANYTHING), (Stage.emergency, EMERGENCY)])
def test_what_is_recorded_ends_the_wait(stage: Stage, act: Callable[[Stage, str], None], said: Unrelayed) -> None:
    assert ended_by(stage, lambda: act(stage, HOSTS[1]), stage.watch(FOR_EVER), HOSTS[1]) == said


def test_more_of_what_waits_anyway_ends_no_wait_and_an_emergency_does(stage: Stage) -> None:
    watch = stage.watch(FOR_EVER)
    stage.ordinary(HOSTS[0])

    async def scenario() -> None:
        assert await watch.poll(HOSTS[0], None) == ANYTHING
        waiting = asyncio.create_task(watch.poll(HOSTS[0], None))
        await stage.is_waiting()
        await asyncio.to_thread(stage.ordinary, HOSTS[0])
        assert await watch.poll(HOSTS[0], 0.2) == ANYTHING
        assert not waiting.done()
        await asyncio.to_thread(stage.emergency, HOSTS[0])
        assert await waiting == EMERGENCY

    asyncio.run(scenario())


def test_what_waits_of_one_host_ends_no_wait_and_something_of_another_does(stage: Stage) -> None:
    watch = stage.watch(FOR_EVER)
    stage.ordinary(HOSTS[0])

    async def scenario() -> None:
        assert await asyncio.gather(*(watch.poll(host, None) for host in HOSTS)) == [ANYTHING, Unrelayed(), Unrelayed()]
        others = [asyncio.create_task(watch.poll(host, None)) for host in HOSTS[1:]]
        await stage.is_waiting()
        await asyncio.to_thread(stage.ordinary, HOSTS[2])
        assert await asyncio.gather(*others) == [Unrelayed(), ANYTHING]

    asyncio.run(scenario())


def test_a_wait_in_vain_ends_and_says_so(stage: Stage) -> None:
    assert asyncio.run(stage.watch(SOON).poll(HOSTS[0], None)) == Unrelayed()


def test_hosts_that_wait_share_a_statement(stage: Stage) -> None:
    watch = stage.watch(SOON)

    async def scenario() -> list[str]:
        with statements(stage.looks) as asked:
            await asyncio.gather(*(watch.poll(host, None) for host in HOSTS))
        return asked

    assert len(asyncio.run(scenario())) == 1


def test_a_relay_that_was_busy_hears_of_a_wait_that_has_just_ended(stage: Stage) -> None:
    watch = stage.watch(RelayPace(wait_s=3600.0, poll_s=3600.0))

    async def scenario() -> None:
        assert await watch.poll(HOSTS[0], 0.0) == Unrelayed()
        other = asyncio.create_task(watch.poll(HOSTS[1], None))
        await stage.is_waiting()
        await asyncio.to_thread(stage.emergency, HOSTS[0])
        await other
        with statements(stage.looks) as asked:
            assert await watch.poll(HOSTS[0], 0.0) == EMERGENCY
        assert asked == []

    asyncio.run(scenario())


def test_nobody_hears_of_a_wait_that_ended_long_ago(stage: Stage) -> None:
    watch = stage.watch(RelayPace(wait_s=0.05, poll_s=0.0))

    async def scenario() -> None:
        assert await watch.poll(HOSTS[0], None) == Unrelayed()
        await asyncio.to_thread(stage.emergency, HOSTS[1])
        assert await watch.poll(HOSTS[1], None) == EMERGENCY

    asyncio.run(scenario())


def test_a_wait_holds_up_no_migration_and_keeps_no_transaction_open(stage: Stage) -> None:
    watch = stage.watch(FOR_EVER)

    async def scenario() -> None:
        waiting = asyncio.create_task(watch.poll(HOSTS[0], None))
        await stage.is_waiting()
        await until(lambda: not rows(stage.engine, "SELECT 1 FROM information_schema.innodb_trx"), "no transaction")
        change_sql(stage.engine, "ALTER TABLE outbox_events COMMENT 'changed meanwhile'")
        assert not waiting.done()
        await asyncio.to_thread(stage.emergency, HOSTS[0])
        await waiting

    asyncio.run(scenario())


def test_the_failure_of_a_wait_is_told_to_each_relay_and_the_next_goes_on(stage: Stage) -> None:
    watch = stage.watch(RelayPace(wait_s=0.05, poll_s=0.0))
    look, fails = watch.transactions.poll, True

    async def failing(fn: Callable[..., object]) -> object:
        if fails:
            raise DatabaseUnavailable("no answer")
        return await look(fn)

    async def scenario() -> list[object]:
        nonlocal fails
        found: list[Awaitable[object]] = [watch.poll(host, None) for host in HOSTS]
        failed = await asyncio.gather(*found, return_exceptions=True)
        fails = False
        assert await watch.poll(HOSTS[0], None) == Unrelayed()
        return list(failed)

    watch.transactions.poll = failing  # type: ignore[method-assign,assignment]
    assert all(isinstance(each, DatabaseUnavailable) for each in asyncio.run(scenario()))


def test_an_emergency_goes_while_ordinary_changes_wait_for_the_next_signal(stage: Stage) -> None:
    pace = RelayPace(signal_interval_s=3600.0, calm_interval_s=3600.0)
    listener = Listener()

    async def scenario() -> None:
        async with running(stage.relay(HOSTS[0], listener, pace)):
            await asyncio.to_thread(stage.ordinary, HOSTS[0])
            await until(lambda: len(listener.ids) == 1, "the first, at once")
            await asyncio.to_thread(stage.ordinary, HOSTS[0])
            await asyncio.to_thread(stage.emergency, HOSTS[0])
            await until(lambda: len(listener.ids) == 2, "the emergency")

    asyncio.run(scenario())
    (ordinary,) = rows(stage.engine, "SELECT entity_id FROM outbox_events WHERE relayed_at IS NULL")
    assert ordinary["entity_id"] == "u"


def test_ordinary_changes_go_when_their_signal_is_due_though_no_wait_ends(stage: Stage) -> None:
    """Another host's wait would go on: nothing new is there."""
    listener = Listener()
    pace = RelayPace(wait_s=7.0, signal_interval_s=0.2, calm_interval_s=0.2)

    async def scenario() -> None:
        watch = stage.watch(pace)
        with statements(stage.looks) as asked:
            async with running(stage.relay(HOSTS[0], listener, pace, watch)):
                for count in (1, 2):
                    await asyncio.to_thread(stage.ordinary, HOSTS[0])
                    await until(lambda count=count: len(listener.ids) == count, "a signal")  # type: ignore[misc]
                await asyncio.to_thread(stage.emergency, HOSTS[0])
                await until(lambda: len(listener.ids) == 3, "the emergency")
        assert len(asked) < 10

    asyncio.run(scenario())


def test_a_backlog_of_full_batches_waits_for_nothing_new(stage: Stage) -> None:
    pace, listener = RelayPace(wait_s=3600.0, batch_refs=2, signal_interval_s=3600.0), Listener()
    for _ in range(7):
        stage.ordinary(HOSTS[0])

    async def scenario() -> None:
        relay = stage.relay(HOSTS[0], listener, pace)
        async with running(relay):
            await until(lambda: len(listener.ids) == 7, "the whole backlog")
            assert relay.condition is RelayState.ACTIVE
            await asyncio.to_thread(stage.emergency, HOSTS[0])
            await until(lambda: len(listener.ids) == 8, "what ends the wait")

    asyncio.run(scenario())
