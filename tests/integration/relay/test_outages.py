"""The relay's own loop through outages of MariaDB and of the writer: it waits, says so once, and goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.relay.duty import FAILED_ROUNDS_BEFORE_LOG, RelayPace
from oldhost_sync.relay.host_relay import HostRelay, SharedPolls, relay_transactions
from oldhost_sync.relay.relay import OutboxWatch, Relay, RelayState
from oldhost_sync.relay.transactions import Transactions
from tests.conformance.private_mariadb import PrivateMariaDB, private_mariadb
from tests.integration.relay.listening import Listener, lease_holder, looking, until
from tests.integration.store.writing import HOST, change_sql, recorded, register, rows

pytestmark = pytest.mark.mariadb
QUICK = RelayPace(poll_s=0.01, signal_interval_s=0.02, schedule_interval_s=0.02, pause_s=0.01, pause_max_s=0.05)


@asynccontextmanager
async def running(relay: Relay | HostRelay) -> AsyncIterator[None]:
    """The relay's loop for the length of the block; whatever it raises fails the test."""
    stop = asyncio.Event()
    task = asyncio.create_task(relay.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("oldhost_sync.relay")]


@pytest.fixture
def own_server() -> Iterator[PrivateMariaDB]:
    """A server that the test may kill."""
    with private_mariadb() as started:
        yield started


@pytest.fixture
def own_engine(own_server: PrivateMariaDB) -> Iterator[Engine]:
    with own_server.fresh_database() as engine:
        yield engine


@pytest.fixture
def own_looks(own_engine: Engine) -> Iterator[Engine]:
    with looking(own_engine) as looks:
        yield looks


def test_the_writer_goes_away_and_comes_back(engine: Engine, looks: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oldhost_sync.relay")

    async def scenario() -> None:
        listener = Listener()
        host_relay = HostRelay(relay_transactions(engine, looks), listener, HOST, owner="one", pace=QUICK)
        relay = host_relay.relay
        async with running(host_relay):
            await until(lambda: relay.condition is RelayState.ACTIVE, "active")
            listener.failing = "before"
            first = recorded(engine).change_id
            await until(lambda: relay.condition is RelayState.WRITER_AWAY, "noticed")
            recorded(engine, entity_id="planned", not_before=datetime.now(UTC) + timedelta(milliseconds=50))
            await until(lambda: len(rows(engine, "SELECT id FROM outbox_events")) == 2, "recorded when due")
            failures = relay._failures
            await until(lambda: relay._failures > failures + 3, "several tries")
            listener.failing = ""
            await until(lambda: len(listener.ids) == 2, "relayed")
            assert listener.ids[0] == first
            await until(lambda: relay.condition is RelayState.ACTIVE, "active again")

    asyncio.run(scenario())
    assert [line.split(": ", 1)[1].split(" (")[0] for line in lines(caplog)] == ["active", "writer away", "active"]


def test_another_relay_takes_over_when_the_active_one_can_t_reach_temporal(engine: Engine, looks: Engine) -> None:
    pace = replace(QUICK, lease_s=0.3)

    async def scenario() -> list[Listener]:
        listeners = [Listener(), Listener()]
        one, two = (
            HostRelay(relay_transactions(engine, looks), listener, HOST, owner=owner, pace=pace)
            for owner, listener in zip(("one", "two"), listeners, strict=True)
        )
        async with running(one):
            await until(lambda: one.relay.condition is RelayState.ACTIVE, "active")
            async with running(two):
                await until(lambda: two.relay.condition is RelayState.STANDBY, "on standby")
                listeners[0].failing = "before"
                recorded(engine)
                await until(lambda: bool(listeners[1].ids), "relayed by the other")
                await until(lambda: one.relay.condition is RelayState.STANDBY, "on standby itself")
        return listeners

    assert [len(listener.ids) for listener in asyncio.run(scenario())] == [0, 1]


def test_two_hosts_of_a_process_miss_mariadb_once_each_and_go_on(
    own_server: PrivateMariaDB, own_engine: Engine, own_looks: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oldhost_sync.relay.relay")
    register(own_engine, "other")

    async def scenario() -> None:
        transactions = relay_transactions(own_engine, own_looks)
        polls = SharedPolls.at(QUICK, transactions["outbox"], "one")
        listeners = [Listener(), Listener()]
        relays = [
            HostRelay(transactions, listener, host, "one", polls, QUICK)
            for host, listener in zip((HOST, "other"), listeners, strict=True)
        ]
        async with running(relays[0]), running(relays[1]):
            await until(lambda: all(each.condition is RelayState.ACTIVE for each in relays), "active")
            own_server.kill()
            await until(lambda: all(each.condition is RelayState.DATABASE_AWAY for each in relays), "noticed")
            await asyncio.to_thread(own_server.start)
            for host in (HOST, "other"):
                await asyncio.to_thread(recorded, own_engine, event_type="guest_locked_out", host=host)
            await until(lambda: all(listener.ids for listener in listeners), "relayed")
            await until(lambda: all(each.condition is RelayState.ACTIVE for each in relays), "active again")

    asyncio.run(scenario())
    for host in (HOST, "other"):
        mine = [line.split(": ", 1)[1].split(" (")[0] for line in lines(caplog) if line.startswith(f"relay of {host}:")]
        assert mine == ["active", "database away", "active"]


def test_mariadb_is_killed_and_comes_back(
    own_server: PrivateMariaDB, own_engine: Engine, own_looks: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oldhost_sync.relay")

    async def scenario() -> None:
        listener = Listener()
        transactions = Transactions(own_engine, threads=2, autocommit_engine=own_looks)
        watch = OutboxWatch(transactions, "one", QUICK)
        relay = Relay(transactions, listener, HOST, owner="one", watch=watch, pace=QUICK)
        async with running(relay):
            first = recorded(own_engine).change_id
            await until(lambda: listener.ids == [first], "relayed before")
            await until(lambda: relay.condition is RelayState.ACTIVE, "active")
            own_server.kill()
            await until(lambda: relay.condition is RelayState.DATABASE_AWAY, "noticed")
            await asyncio.to_thread(own_server.start)
            second = recorded(own_engine, entity_id="102", event_type="guest_locked_out").change_id
            await until(lambda: listener.ids[-1] == second, "relayed after")
            await until(lambda: relay.condition is RelayState.ACTIVE, "active again")

    asyncio.run(scenario())
    assert [line.split(": ", 1)[1].split(" (")[0] for line in lines(caplog)] == ["active", "database away", "active"]


def test_a_due_change_that_the_database_can_not_take_keeps_its_place_and_is_told_of_once(
    engine: Engine, looks: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oldhost_sync.relay")
    for unit in ("first", "second"):
        recorded(engine, entity_id=unit, idempotency_key=unit, not_before=datetime.now(UTC) + timedelta(days=1))
    seconds_ago = "INTERVAL IF(entity_id = 'first', 2, 1) SECOND"
    change_sql(engine, "RENAME TABLE units TO units_away")
    change_sql(engine, f"UPDATE scheduled_changes SET not_before = UTC_TIMESTAMP(6) - {seconds_ago}")

    async def scenario() -> None:
        relay = HostRelay(relay_transactions(engine, looks), Listener(), HOST, owner="one", pace=QUICK)
        scheduling = relay.loops[0]
        async with running(relay):
            await until(lambda: scheduling.failed_rounds.get(HOST, 0) > FAILED_ROUNDS_BEFORE_LOG + 2, "several tries")
            assert rows(engine, "SELECT id FROM scheduled_changes WHERE cancelled_at IS NOT NULL") == []
            change_sql(engine, "RENAME TABLE units_away TO units")
            await until(lambda: len(rows(engine, "SELECT id FROM outbox_events")) == 2, "recorded late")
            await until(lambda: not scheduling.failed_rounds, "on time again")

    asyncio.run(scenario())
    found = rows(engine, "SELECT entity_id FROM outbox_events ORDER BY id")
    assert [row["entity_id"] for row in found] == ["first", "second"]
    assert rows(engine, "SELECT id FROM alerts") == []
    told = [line for line in lines(caplog) if "due" in line]
    assert [line.split(": ")[1] for line in told] == [
        "recording what is due fails",
        "recording what is due works again",
    ]


def test_a_relay_starts_while_the_database_is_still_away(
    own_server: PrivateMariaDB, own_engine: Engine, own_looks: Engine
) -> None:
    change_id = recorded(own_engine).change_id
    own_server.stop()

    async def scenario() -> None:
        listener = Listener()
        relay = Relay(Transactions(own_engine, autocommit_engine=own_looks), listener, HOST, owner="one", pace=QUICK)
        async with running(relay):
            await until(lambda: relay.condition is RelayState.DATABASE_AWAY, "noticed")
            await asyncio.to_thread(own_server.start)
            await until(lambda: listener.ids == [change_id], "relayed")

    asyncio.run(scenario())


def test_a_relay_that_stops_gives_its_place_up_at_once(engine: Engine) -> None:
    async def scenario() -> None:
        one, two = (Relay(Transactions(engine), Listener(), HOST, owner=owner, pace=QUICK) for owner in ("one", "two"))
        async with running(two):
            async with running(one):
                await until(lambda: RelayState.ACTIVE in {one.condition, two.condition}, "one of them")
                await until(lambda: RelayState.STANDBY in {one.condition, two.condition}, "the other one")
                with engine.connect() as connection:
                    assert lease_holder(connection) in {"one", "two"}
            await until(lambda: two.condition is RelayState.ACTIVE, "the second took over")

    asyncio.run(scenario())
    with engine.connect() as connection:
        assert lease_holder(connection) is None
