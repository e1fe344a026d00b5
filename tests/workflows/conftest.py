"""The writer under test in Temporal's time-skipping server: 15-minute bans in milliseconds."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from oldhost_sync.policy.writer_policy import WriterPolicy
from oldhost_sync.temporal import DATA_CONVERTER
from tests.workflows.world import SESSION_QUEUE, World
from workflows import messages
from workflows.sync_writer import SyncWriterWorkflow

LWW, TXN, EMERGENCY = "LWW", "TXN", "EMERGENCY"


@dataclass
class Writer:
    """A running writer and its world. `at(...)` builds refs accepted now."""

    env: WorkflowEnvironment
    world: World
    handle: WorkflowHandle[Any, Any]

    async def enqueue(self, *changes: tuple[int, str, str]) -> None:
        """(change id, class, unit id), accepted at the present virtual time; unit status changes."""
        now_ms = await self.world.now_ms()
        refs: list[Any] = [[one, cls, "unit", unit, f"{cls.lower()}_event", now_ms] for one, cls, unit in changes]
        for ref in refs:
            self.world.known[ref[0]] = ref
        await self.handle.signal("enqueue", messages.EnqueueBatch(refs))

    async def status(self) -> dict[str, Any]:
        return await self.handle.query("status")

    async def skip(self, seconds: float) -> None:
        await self.env.sleep(seconds)

    async def until(self, is_so: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """Wait (real time, virtual time stands still) until the writer's status says so."""
        async with asyncio.timeout(20):
            while True:
                status = await self.status()
                if is_so(status):
                    return status
                await asyncio.sleep(0.01)
        raise AssertionError(what)

    async def operate(self, update: str, **fields: Any) -> Any:
        request = messages.OperatorRequest(operator="ana", reason="test", **fields)
        return await self.handle.execute_update(update, request)


@asynccontextmanager
async def running_writer(
    policy: WriterPolicy | None = None, outstanding: Sequence[list[Any]] = (), **world: Any
) -> AsyncIterator[Writer]:
    async with await WorkflowEnvironment.start_time_skipping(
        data_converter=DATA_CONVERTER, test_server_existing_path=shutil.which("temporal-test-server")
    ) as env:
        the_world = World(env, outstanding=list(outstanding), **world)
        shared = Worker(
            env.client, task_queue=messages.TASK_QUEUE, workflows=[SyncWriterWorkflow], activities=the_world.activities
        )
        session = Worker(env.client, task_queue=SESSION_QUEUE, activities=the_world.session_activities)
        async with shared, session:
            handle = await env.client.start_workflow(
                messages.WORKFLOW_TYPE,
                messages.WriterInput("oldhost", policy or WriterPolicy()),
                id=messages.workflow_id("oldhost"),
                task_queue=messages.TASK_QUEUE,
            )
            yield Writer(env, the_world, handle)
            await handle.terminate()


@pytest.fixture
def writer() -> Any:
    return running_writer
