"""A relay that fails while the database still takes an alert is told of; what another alert tells is not told twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.policy.rules.alert_kinds import KINDS
from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.relay.conditions import ConditionKeeper
from oldhost_sync.relay.duty import RelayPace
from oldhost_sync.relay.host_relay import HostRelay, SharedPolls, relay_transactions
from oldhost_sync.relay.relay import RelayState
from oldhost_sync.relay.relay_health import FAILING, FailingRelays
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import DatabaseUnavailable
from tests.integration.relay.listening import Listener, until
from tests.integration.store.writing import HOST, change_sql, recorded, rows

pytestmark = pytest.mark.mariadb
QUICK = RelayPace(poll_s=0.01, signal_interval_s=0.02, pause_s=0.01, pause_max_s=0.05)
LONG = KINDS[FAILING].opens_after_s + 1


class Stage:
    """A relay at work and the duty that tells of it, each look of which is `later` than the first."""

    def __init__(self, engine: Engine, looks: Engine, owner: str = "one", writer_trouble: str = "") -> None:
        self.engine, self.listener = engine, Listener()
        transactions = relay_transactions(engine, looks)
        polls = SharedPolls.at(QUICK, transactions["outbox"], owner)
        self.relay = HostRelay(transactions, self.listener, HOST, owner, polls, QUICK)
        troubles = {f"writer {HOST}": writer_trouble}
        self.duty = FailingRelays(transactions["alerts"], {HOST: self.relay}, lambda: troubles, Conditions())
        self.keeper = ConditionKeeper(transactions["alerts"], self.duty.conditions)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        task = asyncio.create_task(self.relay.run(stop))
        try:
            await self.until(RelayState.ACTIVE, RelayState.STANDBY)
            yield
        finally:
            stop.set()
            await task

    async def until(self, *conditions: RelayState) -> None:
        await until(lambda: self.relay.condition in conditions, f"{conditions}")

    async def poll(self, now: float) -> None:
        await self.duty.run_once(now)
        await self.keeper.run_once(now)

    async def looks(self) -> list[str]:
        """The texts of the open alerts after two looks, far enough apart."""
        for now in (0.0, LONG):
            await self.poll(now)
        found = await asyncio.to_thread(
            rows,
            self.engine,
            f"SELECT message FROM alerts WHERE kind = '{FAILING}' AND is_open AND severity = 'critical'",
        )
        return [row["message"] for row in found]


def test_an_index_that_somebody_renamed_is_told_of_until_it_is_back(engine: Engine, looks: Engine) -> None:
    async def scenario() -> None:
        stage = Stage(engine, looks)
        async with stage.at_work():
            change_sql(engine, "ALTER TABLE outbox_events RENAME INDEX ix_outbox_events_unrelayed TO ix_dba")
            try:
                await stage.until(RelayState.DATABASE_AWAY)
                (said,) = await stage.looks()
                assert "The relay can't look for changes: Key 'ix_outbox_events_unrelayed' doesn't exist" in said
            finally:
                change_sql(engine, "ALTER TABLE outbox_events RENAME INDEX ix_dba TO ix_outbox_events_unrelayed")
            await stage.until(RelayState.ACTIVE)
            assert await stage.looks() == []

    asyncio.run(scenario())


def test_signals_that_temporal_does_not_take_are_told_of(engine: Engine, looks: Engine) -> None:
    async def scenario() -> None:
        stage = Stage(engine, looks)
        stage.listener.failing = "before"
        async with stage.at_work():
            await asyncio.to_thread(recorded, engine)
            await stage.until(RelayState.WRITER_AWAY)
            (said,) = await stage.looks()
            assert "Temporal does not take the relay's signals: ConnectionError: no Temporal." in said
            stage.listener.failing = ""
            await stage.until(RelayState.ACTIVE)
            assert await stage.looks() == []

    asyncio.run(scenario())


def test_a_writer_whose_trouble_is_told_by_another_alert_is_not_told_of_again(engine: Engine, looks: Engine) -> None:
    async def scenario() -> None:
        stage = Stage(engine, looks, writer_trouble="Temporal does not answer")
        stage.listener.failing = "before"
        async with stage.at_work():
            await asyncio.to_thread(recorded, engine)
            await stage.until(RelayState.WRITER_AWAY)
            assert await stage.looks() == []

    asyncio.run(scenario())


def test_an_outage_of_the_whole_database_is_not_told_of_when_it_is_over(engine: Engine, looks: Engine) -> None:
    """The relay tries again a little later than this duty."""

    async def scenario() -> None:
        stage = Stage(engine, looks)
        stage.relay.relay.condition = RelayState.DATABASE_AWAY
        await stage.poll(0.0)
        stage.duty.transactions = Transactions(create_engine("mysql+pymysql://nobody:x@127.0.0.1:1/none"))
        with pytest.raises(DatabaseUnavailable):
            await stage.poll(LONG)
        stage.duty.transactions = stage.relay.transactions["alerts"]
        await stage.poll(LONG + 1)
        assert rows(engine, f"SELECT 1 FROM alerts WHERE kind = '{FAILING}'") == []

    asyncio.run(scenario())


def test_one_round_that_fails_is_not_told_of(engine: Engine, looks: Engine) -> None:
    async def scenario() -> None:
        stage = Stage(engine, looks)
        stage.relay.relay.condition = RelayState.WRITER_AWAY
        await stage.poll(0.0)
        stage.relay.relay.condition = RelayState.ACTIVE
        await stage.poll(LONG)
        stage.relay.relay.condition = RelayState.WRITER_AWAY
        await stage.poll(LONG + 1)
        assert rows(engine, f"SELECT 1 FROM alerts WHERE kind = '{FAILING}'") == []

    asyncio.run(scenario())


def test_the_relay_that_takes_over_closes_what_the_failing_one_raised(engine: Engine, looks: Engine) -> None:
    async def scenario() -> None:
        failing, other = Stage(engine, looks), Stage(engine, looks, owner="two")
        other.relay.relay.condition = RelayState.ACTIVE
        assert await other.looks() == []
        other.relay.relay.condition = RelayState.STANDBY
        failing.relay.relay.condition = RelayState.WRITER_AWAY
        assert len(await failing.looks()) == len(await other.looks()) == 1
        other.relay.relay.condition = RelayState.ACTIVE
        assert await other.looks() == []

    asyncio.run(scenario())


def test_a_relay_on_standby_does_not_close_what_the_active_one_raised(engine: Engine, looks: Engine) -> None:
    async def scenario() -> None:
        failing, other = Stage(engine, looks), Stage(engine, looks, owner="two")
        failing.relay.relay.condition = RelayState.WRITER_AWAY
        other.relay.relay.condition = RelayState.STANDBY
        assert len(await failing.looks()) == 1
        assert len(await other.looks()) == 1
        other.relay.relay.condition = RelayState.ACTIVE
        assert await other.looks() == []

    asyncio.run(scenario())
