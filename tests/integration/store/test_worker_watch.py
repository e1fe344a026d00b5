"""A worker watches the next one, and tells the writers when that one's process has ended; on a real database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, cast

import pytest
from sqlalchemy import Engine
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.service import RPCError, RPCStatusCode

from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.workers import LOCK_NAME, WorkerPresence, hold, is_free
from oldhost_sync.worker import watch as worker_watch
from oldhost_sync.worker.watch import WorkerWatch, in_ring
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import HOST, change_sql

pytestmark = pytest.mark.mariadb

OTHER = "other"
HOSTS = (HOST, OTHER)
SECONDS_MAX = 20.0


def played(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def play(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return play


@dataclass
class Temporal:
    """A client; what is done to the writers is kept. `away`: hosts whose writer does not run."""

    namespace: str = "default"
    done: list[tuple[str, ...]] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    host: str = ""

    @property
    def workflow_service(self) -> Temporal:
        return self

    async def reset_sticky_task_queue(self, request: ResetStickyTaskQueueRequest, **_: Any) -> None:
        self.done.append(("any worker", request.execution.workflow_id.rpartition(":")[2]))

    def get_workflow_handle(self, workflow_id: str) -> Temporal:
        return Temporal(self.namespace, self.done, self.away, workflow_id.rpartition(":")[2])

    async def signal(self, name: str, task_queue: str, **_: Any) -> None:
        if self.host in self.away:
            raise RPCError("no writer runs", RPCStatusCode.NOT_FOUND, b"")
        self.done.append((name, self.host, task_queue.rpartition("-")[2]))

    def told(self) -> list[tuple[str, ...]]:
        return [each for each in self.done if each[0] == "worker_ended"]

    async def until_done(self, count: int) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while len(self.done) < count:
                await asyncio.sleep(0.01)

    async def until_told(self, count: int) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while len(self.told()) < count:
                await asyncio.sleep(0.01)


@pytest.fixture
def asking(engine: Engine) -> Iterator[Engine]:
    engine = create_engine(engine.url.render_as_string(hide_password=False), pool_size=4, autocommit=True)
    yield engine
    engine.dispose()


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_watch, "WAIT_SECONDS", 0.2)


@pytest.fixture
def temporal() -> Temporal:
    return Temporal()


@asynccontextmanager
async def watched_by(name: str, asking: Engine, temporal: Temporal) -> AsyncIterator[WorkerWatch]:
    presence = WorkerPresence(asking, HOSTS, name)
    threads = ThreadPoolExecutor(1)
    watch = WorkerWatch(asking, cast("Any", temporal), presence, threads)
    task = asyncio.create_task(watch.watch())
    try:
        yield watch
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        threads.shutdown()


@contextmanager
def at_work(engine: Engine, asking: Engine, name: str, *taken: str) -> Iterator[None]:
    """A worker that holds its lock, and had the last session of the hosts `taken`."""
    WorkerPresence(engine, HOSTS, name).begin()
    for host in taken:
        change_sql(engine, f"INSERT INTO nonce_ledger (host, epoch, owner) VALUES ('{host}', 1, '{name}')")
    over = threading.Event()
    thread = threading.Thread(target=hold, args=(asking, name, over))
    thread.start()
    try:
        with asking.connect() as connection:
            while is_free(connection, name, 0):
                pass
        yield
    finally:
        over.set()
        thread.join()


async def until_seen(watch: WorkerWatch, name: str) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while name not in watch.seen:
            await asyncio.sleep(0.01)


async def until_waiting(engine: Engine) -> None:
    """Until a worker waits for the lock of another one."""
    async with asyncio.timeout(SECONDS_MAX):
        with engine.connect() as connection:
            waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock' AND db = DATABASE()"
            while not connection.exec_driver_sql(waits).scalar_one():
                await asyncio.sleep(0.01)


async def until_forgotten(watch: WorkerWatch) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while watch.seen:
            await asyncio.sleep(0.01)


@played
async def test_the_writers_whose_session_it_had_are_told_when_a_worker_has_ended(
    engine: Engine, asking: Engine, temporal: Temporal
) -> None:
    async with watched_by("a", asking, temporal) as watch:
        with at_work(engine, asking, "b", HOST):
            await until_seen(watch, "b")
        await temporal.until_told(1)
    assert temporal.done == [("any worker", HOST), ("any worker", OTHER), ("worker_ended", HOST, "b")]


@played
async def test_a_writer_that_does_not_run_does_not_keep_the_others_from_being_told(
    engine: Engine, asking: Engine, temporal: Temporal
) -> None:
    temporal.away.append(HOST)
    async with watched_by("a", asking, temporal) as watch:
        with at_work(engine, asking, "b", HOST, OTHER):
            await until_seen(watch, "b")
        await temporal.until_told(1)
    assert temporal.told() == [("worker_ended", OTHER, "b")]


@played
async def test_two_that_ended_together_are_both_found(engine: Engine, asking: Engine, temporal: Temporal) -> None:
    async with watched_by("a", asking, temporal) as watch:
        with at_work(engine, asking, "b", HOST), at_work(engine, asking, "c", OTHER):
            await until_seen(watch, "b")
            await until_seen(watch, "c")
        await temporal.until_told(2)
    assert sorted(temporal.told()) == [("worker_ended", HOST, "b"), ("worker_ended", OTHER, "c")]


@played
async def test_a_worker_that_takes_its_lock_again_has_not_ended(
    engine: Engine, asking: Engine, temporal: Temporal
) -> None:
    async with watched_by("a", asking, temporal) as watch:
        with at_work(engine, asking, "b", HOST):
            await until_seen(watch, "b")
            with engine.connect() as connection:
                held_by = connection.exec_driver_sql(f"SELECT IS_USED_LOCK({LOCK_NAME.format(repr('b'))})")
                connection.exec_driver_sql(f"KILL {held_by.scalar_one()}")
            await temporal.until_done(len(HOSTS))
            await until_waiting(engine)
            assert temporal.told() == []


@played
async def test_a_worker_that_never_held_its_lock_is_not_said_to_have_ended(
    engine: Engine, asking: Engine, temporal: Temporal
) -> None:
    """Its lock may be on another server."""
    WorkerPresence(engine, HOSTS, "b").begin()
    change_sql(engine, f"INSERT INTO nonce_ledger (host, epoch, owner) VALUES ('{HOST}', 1, 'b')")
    async with watched_by("a", asking, temporal) as watch:
        with at_work(engine, asking, "c", OTHER):
            await until_seen(watch, "c")
        await temporal.until_told(1)
    assert temporal.told() == [("worker_ended", OTHER, "c")]


@played
async def test_a_worker_that_leaves_in_order_has_moved_the_writers_states_itself(
    engine: Engine, asking: Engine, temporal: Temporal
) -> None:
    async with watched_by("a", asking, temporal) as watch:
        with at_work(engine, asking, "b", HOST):
            await until_seen(watch, "b")
            WorkerPresence(engine, HOSTS, "b").leave()
        await temporal.until_told(1)
    assert temporal.done == [("worker_ended", HOST, "b")]


@played
async def test_no_worker_is_said_to_have_ended_because_its_server_was_demoted(
    engine: Engine, asking: Engine, temporal: Temporal, mariadb_server: PrivateMariaDB
) -> None:
    async with watched_by("a", asking, temporal) as watch:
        with at_work(engine, asking, "b", HOST):
            await until_seen(watch, "b")
            with mariadb_server._root() as root:
                root.execute("SET GLOBAL read_only = ON")
                try:
                    await until_forgotten(watch)
                finally:
                    root.execute("SET GLOBAL read_only = OFF")
            await until_seen(watch, "b")
            assert temporal.done == []


def test_the_next_in_the_ring_follows_by_name_and_after_the_last_comes_the_first() -> None:
    assert in_ring("b", ["c", "a", "d"]) == ["c", "d", "a"]
    assert in_ring("d", ["c", "a"]) == ["a", "c"]
