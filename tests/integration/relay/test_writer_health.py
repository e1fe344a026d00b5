"""The writer's health by a real Temporal server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from oldhost_sync.relay.writers import TemporalDoesNotAnswer, TemporalWriters
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import DATA_CONVERTER, start_writer
from oldhost_sync.temporal.writer_client import WriterClient, WriterUnavailable
from oldhost_sync.temporal.writer_health import WriterHealth, WriterState, describe_writer, writer_health
from tests.faults.other_deployment import MAKE_CURRENT, PIN, make_version, temporal
from workflows.messages import TASK_QUEUE, WORKFLOW_TYPE, WriterPolicy, workflow_id

pytestmark = pytest.mark.temporal
HOST = "oldhost"


@workflow.defn(name=WORKFLOW_TYPE)
class FailingWriter:
    @workflow.run
    async def run(self, _given: int) -> None:
        """Its argument is another one, so every task fails before it begins."""


@workflow.defn(name=WORKFLOW_TYPE)
class SlowlyFailingWriter:
    @workflow.run
    async def run(self, _given: Any) -> None:
        time.sleep(0.5)  # noqa: ASYNC251 - the worker's time, as of a long replay
        raise RuntimeError("a bad deploy")


@workflow.defn(name=WORKFLOW_TYPE)
class IdleWriter:
    @workflow.run
    async def run(self, _given: dict[str, Any]) -> None:
        await workflow.wait_condition(lambda: False)


@workflow.defn(name="Other")
class Other:
    @workflow.run
    async def run(self) -> None:
        """Another program's workflow, which knows none of our queries."""
        await workflow.wait_condition(lambda: False)


async def connected(client: Client) -> Client:
    return client


def writers_worker(client: Client) -> Worker:
    """Without a cache, so that each task is handed out anew."""
    runner = UnsandboxedWorkflowRunner()
    return Worker(client, task_queue=TASK_QUEUE, workflows=[IdleWriter], workflow_runner=runner, max_cached_workflows=0)


async def health_when(client: Client, true: Callable[[WriterHealth], bool]) -> WriterHealth:
    """The first answer for which `true` holds."""
    async with asyncio.timeout(40):
        while not true(health := await writer_health(client, HOST)):
            await asyncio.sleep(0.2)
        return health


def test_a_writer_is_missing_then_without_worker_then_failing_then_closed() -> None:
    async def scenario(server: EmbeddedTemporal) -> None:
        client = await Client.connect(server.address, data_converter=DATA_CONVERTER)
        assert (await writer_health(client, HOST)).state is WriterState.MISSING
        handle = await start_writer(client, HOST, WriterPolicy())
        assert (await writer_health(client, HOST)).state is WriterState.NO_WORKER
        worker = Worker(
            client, task_queue=TASK_QUEUE, workflows=[FailingWriter], workflow_runner=UnsandboxedWorkflowRunner()
        )
        async with worker:
            failing = await health_when(client, lambda health: health.state is WriterState.FAILING)
            assert failing.error.startswith("its workflow task fails: Failed decoding arguments")
        await handle.terminate(reason="enough")
        closed = await writer_health(client, HOST)
        assert closed.state is WriterState.CLOSED
        assert "enough" in closed.error

    with EmbeddedTemporal(None) as server:
        asyncio.run(scenario(server))


def test_a_writer_that_fails_while_signals_arrive_is_failing_at_each_look() -> None:
    """Each signal makes a new task, whose attempt is 1 again."""

    async def scenario(server: EmbeddedTemporal) -> None:
        client = await Client.connect(server.address, data_converter=DATA_CONVERTER)
        handle = await start_writer(client, HOST, WriterPolicy())

        async def signals() -> None:
            while True:
                await handle.signal("enqueue", 1)
                await asyncio.sleep(0.1)

        signalling = asyncio.create_task(signals())
        async with Worker(
            client, task_queue=TASK_QUEUE, workflows=[SlowlyFailingWriter], workflow_runner=UnsandboxedWorkflowRunner()
        ):
            await health_when(client, lambda health: health.state is WriterState.FAILING)
            attempts: list[int] = []
            while attempts.count(1) < 5:
                described, health = await describe_writer(client, HOST), await writer_health(client, HOST)
                assert health.error == "its workflow task fails: a bad deploy"
                assert described is not None
                attempts.append(described.pending_workflow_task.attempt)
        signalling.cancel()

    with EmbeddedTemporal(None) as server:
        asyncio.run(scenario(server))


def test_a_run_of_somebody_elses_is_told_of_until_it_ends() -> None:
    async def scenario(server: EmbeddedTemporal) -> None:
        client = await Client.connect(server.address, data_converter=DATA_CONVERTER)
        theirs = await client.start_workflow("Other", id=workflow_id(HOST), task_queue="theirs")
        assert "Other on task queue theirs" in (await writer_health(client, HOST)).error
        asked = WriterClient(HOST, query_seconds=5, update_seconds=5, connect=lambda: connected(client))
        async with Worker(client, task_queue="theirs", workflows=[Other], workflow_runner=UnsandboxedWorkflowRunner()):
            with pytest.raises(WriterUnavailable, match="Other on task queue theirs"):
                await asked.query("status")
        await theirs.terminate()
        assert (await writer_health(client, HOST)).state is WriterState.CLOSED

    with EmbeddedTemporal(None) as server:
        asyncio.run(scenario(server))


@pytest.mark.parametrize("how", ["current", "pinned"])
def test_tasks_that_go_to_another_deployments_version_are_told_of_with_the_command_that_brings_them_back(
    how: str,
) -> None:
    """A person sets a current version for the task queue, or pins the run; the command is run as it is told."""

    async def scenario(server: EmbeddedTemporal) -> None:
        client = await Client.connect(server.address, data_converter=DATA_CONVERTER)
        async with writers_worker(client):
            await make_version(client)
            handle = await start_writer(client, HOST, WriterPolicy())
            await health_when(client, lambda health: health.runs)
            await temporal(server.address, MAKE_CURRENT if how == "current" else f"{PIN} {handle.id}")
            await handle.signal("anything")
            health = await health_when(client, lambda health: health.state is WriterState.NO_WORKER)
            assert "version 'b 1' of the worker deployment 'theirs', and our workers have no version" in health.error
            assert "terminate" not in health.advice
            command = health.advice.split("`")[1].removeprefix("temporal ")
            await temporal(server.address, f"{command} --yes" if how == "current" else command)
            await health_when(client, lambda health: health.runs)

    with EmbeddedTemporal(None) as server:
        asyncio.run(scenario(server))


def test_a_namespace_that_is_gone_is_not_a_missing_writer() -> None:
    async def scenario(server: EmbeddedTemporal) -> None:
        client = await Client.connect(server.address, namespace="nix", data_converter=DATA_CONVERTER, lazy=True)
        with pytest.raises(RPCError, match="Namespace nix is not found"):
            await writer_health(client, HOST)
        writers = TemporalWriters(lambda _: WriterPolicy(), lambda: connected(client))
        with pytest.raises(TemporalDoesNotAnswer, match="no namespace of this name"):
            await writers.health(HOST)
        asked = WriterClient(HOST, query_seconds=5, update_seconds=5, connect=lambda: connected(client))
        with pytest.raises(WriterUnavailable, match="no namespace of this name"):
            await asked.query("status")

    with EmbeddedTemporal(None) as server:
        asyncio.run(scenario(server))


def test_a_worker_that_left_is_missed_when_its_task_is_not_taken() -> None:
    async def scenario(server: EmbeddedTemporal) -> None:
        client = await Client.connect(server.address, data_converter=DATA_CONVERTER)
        worker = Worker(
            client, task_queue=TASK_QUEUE, workflows=[FailingWriter], workflow_runner=UnsandboxedWorkflowRunner()
        )
        async with worker:
            await asyncio.sleep(0)
        await start_writer(client, HOST, WriterPolicy())
        untaken = await health_when(client, lambda health: "task" in health.error)
        assert untaken.state is WriterState.NO_WORKER

    with EmbeddedTemporal(None) as server:
        asyncio.run(scenario(server))
