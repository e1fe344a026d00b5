"""A time-skipping server for each test: 15-minute bans in milliseconds.

Each has its own, for time is shared by all that a server runs, and stands still for ever beside a workflow that was
terminated in the middle of an activity.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.client import AsyncActivityHandle, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.tuning import WriterPolicy
from oldhost_sync.roles.sdk_worker import LeavingWorker
from tests.time_skipping import LimitsOffTheSecond, start_time_skipping
from tests.workflows.world import World
from workflows import messages
from workflows.sync_writer import SyncWriterWorkflow

LWW, TXN, EMERGENCY = "LWW", "TXN", "EMERGENCY"
DEADLINE_SECONDS = 60  # of real time, for anything that a test waits for: who waits so long waits for ever
LEAVES_WITHIN_SECONDS = 10
TEST_SHARE_MAX = 0.75  # of pytest's own limit, which can't tell where a task waits


@dataclass
class Writer:
    """A running writer and its world."""

    env: WorkflowEnvironment
    world: World
    handle: WorkflowHandle[Any, Any]

    async def take(self, cls: str, unit: str, payload: str = "", property_id: str = "") -> int:
        """Accept a change now and signal it; returns its id."""
        ref = await self.world.accept(cls, unit, payload, property_id)
        await self.deliver(ref)
        return ref.change_id

    async def deliver(self, *refs: ChangeRef) -> None:
        batch = messages.EnqueueBatch.of(refs)
        await self.handle.signal("enqueue", batch)

    async def status(self) -> dict[str, Any]:
        status: dict[str, Any] = await self.handle.query("status")
        return status

    async def skip(self, seconds: float) -> None:
        """Let virtual time pass."""
        await self.env.sleep(seconds)

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait, while virtual time stands still, until the world looks so."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not is_so():
                await asyncio.sleep(0.005)

    async def until_status(self, is_so: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The same of the writer's status. Seldom asked: the server loses tasks when queries hail down on it."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not is_so(status := await self.status()):
                await asyncio.sleep(0.2)
        return status

    async def until_state(self, state: str) -> dict[str, Any]:
        return await self.until_status(lambda status: status["state"] == state)

    async def until_quiet(self) -> dict[str, Any]:
        """Until every change has its fate, but for those held, and the writer knows it."""
        books = self.world.books
        await self.until(lambda: all(books.dead_of(change.ref.entity) for change in books.outstanding()))
        return await self.until_status(lambda status: not status["waiting"] and not status["in_flight"])

    async def until_rejected(self, count: int = 1) -> None:
        """Until the writer knows of so many dead letters."""
        await self.until_status(lambda status: status["dead_letters"] == count)

    async def operate(self, update: str, **fields: Any) -> Any:
        request = messages.OperatorAct(operator="ana", reason="test", **fields)
        return await self.handle.execute_update(update, request)


async def stuck(writer: Writer, name: str) -> AsyncActivityHandle:
    """An activity of this name, one of `World.stuck`, which has begun: for a person to end it."""
    await writer.until(lambda: name in writer.world.stuck_at)
    activity_id = writer.world.stuck_at[name]
    return writer.env.client.get_async_activity_handle(
        workflow_id=writer.handle.id, run_id=None, activity_id=activity_id
    )


async def report_failed_by_hand(writer: Writer) -> None:
    """A person fails the activity that records what is the case; it is recorded a second later."""
    writer.world.stuck.append("record_conditions")
    await writer.handle.signal("nobody_knows_this")
    failed = await stuck(writer, "record_conditions")
    await failed.fail(ApplicationError("by hand", non_retryable=True))
    writer.world.stuck.clear()
    await writer.skip(5)
    await writer.until(lambda: writer.world.told("unreadable-signal"))


async def two_sends_given_up(writer: Writer) -> None:
    """Of two sends in flight one misses its heartbeat; the other one reports when the next session is open."""
    world = writer.world
    world.may_send.clear()
    await writer.take(TXN, "unit-0")
    await writer.until(lambda: world.sends_begun == 1)  # so that the second send has the second change
    for number in range(1, 12):
        await writer.take(TXN, f"unit-{number}")
    await writer.until(lambda: world.sends_begun == 2)
    world.silent_sends, world.sends_with_late_report = [1], [2]
    world.may_send.set()
    await writer.until(lambda: len(world.answers) == 2)
    world.may_report.set()
    await writer.until_quiet()


async def session_given_up(writer: Writer) -> None:
    """A worker is said to have ended while it has a send: the next session does not wait for that send's end."""
    world = writer.world
    world.sends_with_late_report = [1]
    await writer.take(TXN, "unit-0")
    await writer.until(lambda: world.sends)
    await writer.handle.signal("worker_ended", world.session_queue)
    await writer.until(lambda: len(world.answers) == 2)


async def start_run(
    env: WorkflowEnvironment, world: World, policy: WriterPolicy | None = None
) -> WorkflowHandle[Any, Any]:
    return await env.client.start_workflow(
        messages.WORKFLOW_TYPE,
        messages.WriterInput(world.host, policy or WriterPolicy()),
        id=messages.workflow_id(world.host),
        task_queue=messages.TASK_QUEUE,
    )


class Stage:
    """The server, and the loop that the test runs on."""

    def __init__(self, runner: asyncio.Runner, env: WorkflowEnvironment) -> None:
        self.runner = runner
        self.env = env

    @asynccontextmanager
    async def writer(self, policy: WriterPolicy | None = None, **world: Any) -> AsyncIterator[Writer]:
        """A writer in a new world, started, and ended at the end."""
        async with self.idle_writer(policy, **world) as writer, self.workers(writer.world):
            yield writer

    @asynccontextmanager
    async def idle_writer(self, policy: WriterPolicy | None = None, **world: Any) -> AsyncIterator[Writer]:
        """A writer without a worker; the test brings `workers`."""
        the_world = World(self.env, **world)
        writer = Writer(self.env, the_world, await self.start(the_world, policy))
        try:
            yield writer
        finally:
            await writer.handle.terminate()

    async def start(self, world: World, policy: WriterPolicy | None = None) -> WorkflowHandle[Any, Any]:
        return await start_run(self.env, world, policy)

    @asynccontextmanager
    async def workers(self, world: World, *, cache: int = 100) -> AsyncIterator[None]:
        async with self.workflows(cache=cache), self.activities(world):
            yield

    def workflows(self, *, cache: int) -> LeavingWorker:
        """`cache` 0: every task replays the whole history, as after a restart (and none waits for a
        worker that is gone)."""
        return LeavingWorker(
            self.env.client,
            task_queue=messages.TASK_QUEUE,
            workflows=[SyncWriterWorkflow],
            max_cached_workflows=cache,
            interceptors=[LimitsOffTheSecond()],
            leaves_within_seconds=LEAVES_WITHIN_SECONDS,
        )

    @asynccontextmanager
    async def activities(self, world: World) -> AsyncIterator[None]:
        client = self.env.client
        shared = LeavingWorker(
            client,
            task_queue=messages.TASK_QUEUE,
            activities=world.activities,
            leaves_within_seconds=LEAVES_WITHIN_SECONDS,
        )
        session = LeavingWorker(
            client,
            task_queue=world.session_queue,
            activities=world.session_activities,
            leaves_within_seconds=LEAVES_WITHIN_SECONDS,
        )
        async with shared, session:
            yield


@pytest.fixture
def stage() -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        env = runner.run(start_time_skipping())
        yield Stage(runner, env)
        runner.run(env.shutdown())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An async test runs on the stage's loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    stage = pyfuncitem.funcargs["stage"]
    assert isinstance(stage, Stage)
    stage.runner.run(_bounded(pyfuncitem.obj(**arguments), TEST_SHARE_MAX * _seconds_max(pyfuncitem)))
    return True


def _seconds_max(test: pytest.Function) -> float:
    marker = test.get_closest_marker("timeout")
    return float(marker.args[0] if marker else test.config.getini("timeout"))


def _waits_at(waiting: Any) -> Iterator[str]:
    """File and line of each coroutine that waits for the next, the outermost first."""
    while frame := getattr(waiting, "cr_frame", None):
        yield f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"
        waiting = waiting.cr_await


async def _bounded(test: Coroutine[Any, Any, None], seconds: float) -> None:
    """A test that hangs says where each of its tasks waits."""
    running = asyncio.ensure_future(test)
    done, _ = await asyncio.wait({running}, timeout=seconds)
    if not done:
        for task in asyncio.all_tasks():
            print(f"{task.get_name()} waits:", *_waits_at(task.get_coro()), sep="\n  ", file=sys.stderr)
        running.cancel()
        await asyncio.wait({running}, timeout=LEAVES_WITHIN_SECONDS)  # while the server is there
        pytest.fail(f"not done after {seconds:g} s; above is where each task waits")
    running.result()
