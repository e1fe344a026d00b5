"""However the writer is started, it works: without an argument, with a strange one, by signal or by update."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy

from oldhost_sync.policy.tuning import WriterPolicy
from tests.workflows.conftest import Stage, Writer
from tests.workflows.world import World
from workflows import messages

pytestmark = pytest.mark.temporal

GOOD = {"entity_type": "unit", "entity_id": "a", "event_type": "booking_created", "payload": {"guest": 7}}


async def start(stage: Stage, *arguments: Any, **settings: Any) -> Writer:
    world = World(stage.env, **settings)
    handle = await stage.env.client.start_workflow(
        messages.WORKFLOW_TYPE,
        args=list(arguments),
        id=messages.workflow_id(world.host),
        task_queue=messages.TASK_QUEUE,
        start_signal="submit_change",
        start_signal_args=[GOOD],
    )
    return Writer(stage.env, world, handle)


@pytest.mark.parametrize(
    "arguments",
    [[], [None], [{}], [{"policy": None}], [{"host": ""}], ["text"], [7], [[]], [{"policy": {"debounce_ms": "soon"}}]],
    ids=str,
)
async def test_a_writer_is_started_with_any_argument_and_takes_the_signal(stage: Stage, arguments: list[Any]) -> None:
    writer = await start(stage, *arguments)
    async with stage.workers(writer.world):
        await writer.until(lambda: writer.world.applied_ids == [1])
        assert (await writer.status())["host"] == writer.world.host
        await writer.handle.terminate()


async def test_an_argument_that_is_none_is_told_to_people(stage: Stage) -> None:
    writer = await start(stage, "text")
    async with stage.workers(writer.world):
        await writer.until(lambda: writer.world.told("unreadable-signal"))
        assert "started with a wrong argument" in writer.world.told("unreadable-signal")[0].message
        await writer.handle.terminate()


async def test_lists_of_conditions_are_numbered_above_those_of_earlier_runs_whose_clock_was_ahead(stage: Stage) -> None:
    """The store takes lower numbers for older, and ignores them."""
    writer = await start(stage, answers=False)
    writer.world.books.conditions_sequence = ahead = 4_000_000_000_000
    async with stage.workers(writer.world):
        await writer.until(lambda: writer.world.lists != [])
        assert min(told.sequence for told in writer.world.lists) > ahead
        await writer.handle.terminate()


async def test_the_host_is_the_workflows_whatever_the_argument_says(stage: Stage) -> None:
    writer = await start(stage, {"host": "another"})
    async with stage.workers(writer.world):
        await writer.until(lambda: writer.world.applied_ids == [1])
        assert (await writer.status())["host"] == writer.world.host
        await writer.handle.terminate()


async def test_a_writer_without_a_policy_takes_the_workers_settings(stage: Stage) -> None:
    writer = await start(stage, policy_of_worker=WriterPolicy(debounce_ms=5_000))
    async with stage.workers(writer.world):
        await writer.until(lambda: writer.world.applied_ids == [1])
        change = await writer.take("LWW", "b")
        await writer.skip(7)
        await writer.until(lambda: writer.world.applied_ids == [1, change])
        await writer.handle.terminate()


async def test_an_update_starts_the_writer_and_is_answered_when_the_change_is_recorded(stage: Stage) -> None:
    world = World(stage.env)
    operation: Any = WithStartWorkflowOperation(
        messages.WORKFLOW_TYPE,
        id=messages.workflow_id(world.host),
        task_queue=messages.TASK_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )
    async with stage.workers(world):
        try:
            answer = await stage.env.client.execute_update_with_start_workflow(
                "submit", GOOD | {"idempotency_key": "k"}, start_workflow_operation=operation
            )
            assert answer == {"idempotency_key": "k", "change_id": 1, "status": "WAITING"}
            assert list(world.books.changes) == [1]
        finally:
            await (await operation.workflow_handle()).terminate()
