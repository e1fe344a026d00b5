"""The waiting room before the database's threads: bounded in number and in time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.api import http_limits
from oldhost_sync.api.database import Database
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.writes import GroupCommit
from oldhost_sync.store.errors import CommitUncertain
from oldhost_sync.store.intake.validation import Acceptable, accept


class HangingEngine:
    """A server that takes connections and then says nothing, until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked = threading.Semaphore(0)

    def connect(self) -> Any:
        self.asked.release()
        self.let_go.wait(10)
        raise ValueError("let go")

    def dispose(self) -> None:
        self.let_go.set()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingEngine]:
    monkeypatch.setattr(http_limits, "DATABASE_QUEUE_MAX", 3)
    monkeypatch.setattr(http_limits, "DATABASE_QUEUE_SECONDS_MAX", 30.0)
    engine = HangingEngine()
    yield engine
    engine.let_go.set()


@pytest.fixture
def impatient(hanging: HangingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits gives up soon. Not for a test that counts who waits: a busy machine takes longer to begin it."""
    monkeypatch.setattr(http_limits, "DATABASE_QUEUE_SECONDS_MAX", 0.05)


async def refusals(database: Database, count: int) -> list[Problem | None]:
    """Ask `count` times at once; what each was told."""
    answers = await asyncio.gather(*(database.run(lambda _: None) for _ in range(count)), return_exceptions=True)
    return [answer if isinstance(answer, Problem) else None for answer in answers]


@pytest.mark.usefixtures("impatient")
def test_when_the_database_hangs_the_waiting_give_up_and_the_next_are_refused_at_once(hanging: HangingEngine) -> None:
    async def scenario() -> None:
        database = Database(cast("Engine", hanging), threads=1)
        stuck = asyncio.create_task(database.run(lambda _: None))
        await asyncio.sleep(0)
        waited = await refusals(database, 2)
        assert all(answer is not None and "too-busy" in str(answer.content["type"]) for answer in waited)
        assert database.circuit.is_open
        (at_once,) = await refusals(database, 1)
        assert at_once is not None
        assert "database-away" in str(at_once.content["type"])
        hanging.let_go.set()
        with pytest.raises(ValueError, match="let go"):
            await stuck
        database.close()

    asyncio.run(scenario())


@pytest.mark.usefixtures("impatient")
def test_nobody_waits_longer_for_an_answer_than_the_limit_and_the_thread_stays_taken(
    hanging: HangingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "DATABASE_ANSWER_SECONDS_MAX", 0.1)

    async def scenario() -> None:
        database = Database(cast("Engine", hanging), threads=1)
        with pytest.raises(CommitUncertain, match="does not answer"):
            await database.run(lambda _: None)
        assert "it does not answer" in str(database.circuit.problem().content["detail"])
        assert database._free.locked()
        hanging.let_go.set()
        await database._free.acquire()
        assert not database.circuit.is_open
        database.close()

    asyncio.run(scenario())


def test_a_full_waiting_room_refuses_at_once(hanging: HangingEngine) -> None:
    async def scenario() -> None:
        database = Database(cast("Engine", hanging), threads=1)
        tasks = [asyncio.create_task(database.run(lambda _: None)) for _ in range(4)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert database.waiting == 3
        with pytest.raises(Problem, match="Too many requests"):
            await asyncio.wait_for(database.run(lambda _: None), 0.01)
        hanging.let_go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        database.close()

    asyncio.run(scenario())


def a_change(unit: str) -> Acceptable:
    return accept("h", "unit", unit, "e", {}, None, None, None, "test")


@pytest.mark.usefixtures("impatient")
def test_changes_that_wait_behind_a_hanging_transaction_give_up_and_the_next_are_refused_at_once(
    hanging: HangingEngine,
) -> None:
    async def scenario() -> None:
        database = Database(cast("Engine", hanging), threads=1)
        commits = GroupCommit(database)
        stuck = asyncio.create_task(commits.record(a_change("stuck")))
        await asyncio.sleep(0)
        waited = await asyncio.gather(*(commits.record(a_change(unit)) for unit in "ab"), return_exceptions=True)
        assert ["too-busy" in str(cast("Problem", answer).content["type"]) for answer in waited] == [True, True]
        assert commits.waiting == 0
        with pytest.raises(Problem, match="database"):
            await asyncio.wait_for(commits.record(a_change("c")), 0.01)
        hanging.let_go.set()
        with pytest.raises(ValueError, match="let go"):
            await stuck
        database.close()

    asyncio.run(scenario())


def test_a_process_that_stood_still_meanwhile_goes_on_waiting(
    hanging: HangingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "DATABASE_QUEUE_SECONDS_MAX", 0.6)

    async def scenario() -> None:
        database = Database(cast("Engine", hanging), threads=1)
        commits = GroupCommit(database)
        tasks = [asyncio.create_task(commits.record(a_change(unit))) for unit in ("stuck", "waiting")]
        await asyncio.sleep(0)
        threading.Event().wait(0.8)  # nothing runs in this process meanwhile
        hanging.let_go.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(answer) for answer in answers] == ["let go", "let go"]
        assert not database.circuit.is_open
        database.close()

    asyncio.run(scenario())


def test_each_host_has_a_thread_for_its_groups_beside_the_others(hanging: HangingEngine) -> None:
    async def scenario() -> None:
        database = Database(cast("Engine", hanging), threads=1, hosts=2)
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(database.run(lambda _: None))]
        tasks += [asyncio.create_task(GroupCommit(database).record(a_change("u"))) for _ in range(2)]
        assert await asyncio.to_thread(hanging.asked.acquire, timeout=5)
        assert await asyncio.to_thread(hanging.asked.acquire, timeout=5)
        assert await asyncio.to_thread(hanging.asked.acquire, timeout=5)
        hanging.let_go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        database.close()

    asyncio.run(scenario())


def test_those_who_wait_for_a_group_are_counted_with_those_who_wait_for_a_thread(hanging: HangingEngine) -> None:
    async def scenario() -> None:
        database = Database(cast("Engine", hanging), threads=1, hosts=2)
        commits = [GroupCommit(database), GroupCommit(database)]
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(database.run(lambda _: None)) for _ in range(2)]
        tasks += [asyncio.create_task(each.record(a_change("u"))) for each in commits for _ in range(3)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert database.waiting == 1 + 2 + 2
        hanging.let_go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        database.close()

    asyncio.run(scenario())


def test_a_change_that_finds_as_many_waiting_as_may_wait_is_refused_at_once(hanging: HangingEngine) -> None:
    async def scenario() -> None:
        database = Database(cast("Engine", hanging), threads=1)
        commits = GroupCommit(database)
        tasks = [asyncio.create_task(commits.record(a_change(unit))) for unit in ("stuck", "a", "b", "c")]
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="Too many requests"):
            await asyncio.wait_for(commits.record(a_change("d")), 0.01)
        hanging.let_go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        database.close()

    asyncio.run(scenario())
