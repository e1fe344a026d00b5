"""The watchdog: while something is outstanding a writer runs, or an open alert says why not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine
from temporalio.client import Client

from oldhost_sync.policy.rules.conditions import Conditions, Step
from oldhost_sync.relay.conditions import ConditionKeeper
from oldhost_sync.relay.duty import HostsFailed
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.relay.watchdog import Watchdog
from oldhost_sync.relay.writers import TemporalDoesNotAnswer, TemporalWriters
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.store.errors import DatabaseUnavailable
from oldhost_sync.temporal.client import DATA_CONVERTER, start_writer, writer_handle
from oldhost_sync.temporal.writer_health import WriterHealth, WriterState
from tests.integration.store.writing import HOST, change_sql, recorded, register, rows
from workflows.messages import WriterPolicy

pytestmark = pytest.mark.mariadb
RUNNING = WriterHealth(WriterState.RUNNING)


class KnownWriters:
    """Writers that are as the test says; `asked` counts."""

    def __init__(self, health: WriterHealth | None = RUNNING) -> None:
        self.known = health
        self.asked: list[str] = []
        self.started: list[str] = []
        self.nudged: list[str] = []

    async def start(self, host: str) -> None:
        self.started.append(host)

    async def nudge(self, host: str) -> None:
        self.nudged.append(host)

    async def health(self, host: str) -> WriterHealth:
        self.asked.append(host)
        if self.known is None:
            raise TemporalDoesNotAnswer("unavailable")
        return self.known


class Stage:
    """A watchdog that is active for `hosts`, with a clock of its own."""

    def __init__(
        self, engine: Engine, writers: KnownWriters | TemporalWriters, hosts: tuple[str, ...] = (HOST,)
    ) -> None:
        transactions = Transactions(engine)
        self.leaderships = {host: Leadership(transactions, host, "one", 1e6) for host in hosts}
        conditions = Conditions()
        self.watchdog = Watchdog(transactions, self.leaderships, writers, conditions, owner="one")
        self.keeper = ConditionKeeper(transactions, conditions)

    async def looks(self, *times: float) -> None:
        for now in times:
            for leadership in self.leaderships.values():
                await leadership.hold(now)
            await self.watchdog.run_once(now)
            await self.keeper.run_once(now)


def open_alerts(engine: Engine) -> list[str]:
    return [row["kind"] for row in rows(engine, "SELECT kind FROM alerts WHERE is_open ORDER BY id")]


def test_trouble_is_told_of_once_and_closed_when_it_is_over(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    recorded(engine)
    writers = KnownWriters(WriterHealth(WriterState.FAILING, "its workflow task fails: nonsense"))
    stage = Stage(engine, writers)

    async def scenario() -> None:
        await stage.looks(0, 3, 6, 9, 12)
        assert [row["message"] for row in rows(engine, "SELECT message FROM alerts")] == [
            "the writer is stuck: its workflow task fails: nonsense"
        ]
        writers.known = RUNNING
        await stage.looks(15)

    asyncio.run(scenario())
    assert open_alerts(engine) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"alert writer-failing of {HOST}: the writer is stuck: its workflow task fails: nonsense",
        f"alert writer-failing of {HOST} is closed: the writer runs",
    ]


@pytest.mark.parametrize("state", [WriterState.FAILING, WriterState.NO_WORKER])
def test_a_worker_that_is_silent_is_named_first_whatever_temporal_makes_of_it(
    engine: Engine, state: WriterState
) -> None:
    """A frozen one is remembered as polling, and the task that it holds is not finished in time."""
    recorded(engine)
    change_sql(
        engine,
        f"INSERT INTO workers (host, name, knows_release, seen_at) VALUES ('{HOST}', 'w1', 1, "
        "UTC_TIMESTAMP(6) - INTERVAL 60 SECOND)",
    )
    asyncio.run(Stage(engine, KnownWriters(WriterHealth(state, "its task waits"))).looks(0, 3, 6, 9))
    (alert,) = rows(engine, "SELECT message FROM alerts WHERE is_open")
    assert alert["message"].startswith("Worker w1 is silent since")
    assert "Restart worker w1" in alert["message"]
    assert "its task waits" in alert["message"]


def test_a_writer_that_has_ended_is_started_by_one_look_though_an_alert_is_locked(engine: Engine) -> None:
    recorded(engine)
    asyncio.run(Stage(engine, KnownWriters(None)).looks(0, 10))
    writers = KnownWriters(WriterHealth(WriterState.CLOSED, "it was terminated"))
    event.listen(engine, "begin", lambda each: each.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 0"))
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT * FROM alerts FOR UPDATE")
        with pytest.raises(HostsFailed, match="1205"):
            asyncio.run(Stage(engine, writers).looks(0))
    assert writers.started == [HOST]


def test_a_writer_is_nudged_while_changes_wait_though_others_end(engine: Engine) -> None:
    """The timers that it waits for may be hours late, while it sends what needs none."""
    writers = KnownWriters()
    stage = Stage(engine, writers)
    asyncio.run(stage.looks(0, 200, 400))
    assert writers.nudged == []  # nothing waits
    recorded(engine)
    asyncio.run(stage.looks(500, 590))
    change_sql(engine, f"INSERT INTO nonce_ledger (host, fate_sequence) VALUES ('{HOST}', 1)")  # a fate
    asyncio.run(stage.looks(600, 679))
    assert writers.nudged == []
    asyncio.run(stage.looks(700))
    assert writers.nudged == [HOST]


def test_an_outage_ends_a_look_and_is_not_waited_for_by_each_host(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def away(_: object, step: Step) -> None:
        asked.append(step.host)
        raise DatabaseUnavailable

    async def scenario() -> None:
        with pytest.raises(DatabaseUnavailable):
            await stage.looks(0)

    monkeypatch.setattr("oldhost_sync.relay.conditions.keep_condition", away)
    stage = Stage(engine, KnownWriters(), tuple("abcde"))
    asyncio.run(scenario())
    assert len(asked) == 1


def test_an_alert_that_can_not_be_closed_is_closed_by_a_later_look(engine: Engine) -> None:
    recorded(engine)
    writers = KnownWriters(None)
    stage = Stage(engine, writers)

    async def scenario() -> None:
        await stage.looks(0, 10)
        writers.known = RUNNING
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT * FROM alerts FOR UPDATE")
            with pytest.raises(HostsFailed, match="1205"):
                await stage.looks(13)
        assert open_alerts(engine) == ["temporal-away"]
        await stage.looks(16)

    asyncio.run(scenario())
    assert open_alerts(engine) == []


def test_temporal_away_is_told_of_while_something_waits(engine: Engine) -> None:
    recorded(engine)
    writers = KnownWriters(None)
    asyncio.run(Stage(engine, writers).looks(0, 3, 6, 9, 12))
    assert open_alerts(engine) == ["temporal-away"]
    assert writers.started == []


def test_alerts_that_another_relay_left_open_are_closed_by_its_successor(engine: Engine) -> None:
    recorded(engine)
    asyncio.run(Stage(engine, KnownWriters(None)).looks(0, 10))
    assert open_alerts(engine) == ["temporal-away"]
    asyncio.run(Stage(engine, KnownWriters()).looks(0))
    assert open_alerts(engine) == []


def test_hosts_without_anything_outstanding_or_with_fates_are_hardly_asked_about(engine: Engine) -> None:
    hosts = tuple(f"host-{number}" for number in range(20))
    writers = KnownWriters()
    stage = Stage(engine, writers, hosts)
    busy, silent = hosts[0], hosts[1]
    register(engine, busy, silent)
    for host in (busy, silent):
        recorded(engine, host=host)
        change_sql(engine, f"INSERT INTO nonce_ledger (host) VALUES ('{host}')")

    async def scenario() -> None:
        await stage.looks(0)
        writers.asked.clear()
        for now in (3, 6, 9, 12):
            change_sql(engine, f"UPDATE nonce_ledger SET fate_sequence = fate_sequence + 1 WHERE host = '{busy}'")
            await stage.looks(now)

    asyncio.run(scenario())
    assert writers.asked == [silent] * 4


def test_a_relay_on_standby_watches_nothing(engine: Engine) -> None:
    recorded(engine)
    writers = KnownWriters(None)
    change_sql(engine, "INSERT INTO relay_lease VALUES ('oldhost', 'other', UTC_TIMESTAMP(6) + INTERVAL 1 SECOND)")
    asyncio.run(Stage(engine, writers).looks(0, 0.1))
    assert writers.asked == []


def test_what_two_relays_know_of_a_problem_outlasts_a_lease_that_goes_to_and_fro(engine: Engine) -> None:
    """While Temporal is away for both, each offers its lease; the alert is not later for that."""
    recorded(engine)
    stage = Stage(engine, KnownWriters(None))
    leadership = stage.leaderships[HOST] = Leadership(Transactions(engine), HOST, "one", 5.0)
    other = Leadership(Transactions(engine), HOST, "two", 5.0)

    async def scenario() -> None:
        await stage.looks(0, 3)
        await leadership.offer(4)
        assert await other.hold(5)
        await stage.looks(8)
        assert open_alerts(engine) == []
        await other.offer(9)
        await stage.looks(12)

    asyncio.run(scenario())
    assert open_alerts(engine) == ["temporal-away"]


@pytest.fixture
def temporal(tmp_path: Path) -> Iterator[EmbeddedTemporal]:
    with EmbeddedTemporal(tmp_path / "temporal") as server:
        yield server


@pytest.mark.temporal
@pytest.mark.parametrize("end", ["terminate", "cancel", "nothing"])
def test_a_writer_that_is_gone_while_changes_wait_is_started_by_one_look(
    engine: Engine, temporal: EmbeddedTemporal, end: str
) -> None:
    """A cancelled run does not end without a worker; it is there, so none is started."""
    recorded(engine)

    async def scenario() -> None:
        client = await Client.connect(temporal.address, data_converter=DATA_CONVERTER)
        handle = await start_writer(client, HOST, WriterPolicy())
        first = (await handle.describe()).run_id
        if end == "terminate":
            await handle.terminate(reason="by mistake")
        elif end == "cancel":
            await handle.cancel()

        async def connect() -> Client:
            return client

        await Stage(engine, TemporalWriters(lambda _: WriterPolicy(), connect)).looks(0)
        now = await writer_handle(client, HOST).describe()
        assert (now.run_id != first) == (end == "terminate")
        assert now.status is not None
        assert now.status.name == "RUNNING"

    asyncio.run(scenario())
