"""A Worker that leaves: the polls for workflow tasks are used up before it cancels any, and others take over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import (
    FixedSizeSlotSupplier,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    UnsandboxedWorkflowRunner,
    WorkerTuner,
)

from oldhost_sync.roles.sdk_worker import LeavingWorker, WorkflowSlots
from oldhost_sync.stack.temporal import EmbeddedTemporal

# The stage has the loop that async tests run on.
pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("stage")]

QUEUE = "slots"


@workflow.defn
class Asked:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def ask(self) -> None:
        pass


@dataclass
class Use:
    """What the SDK says when a poll has brought a task."""

    permit: SlotPermit


@dataclass
class Context:
    """What the SDK says of a poll."""

    is_sticky: bool


def a_worker(client: Client, slots: WorkflowSlots) -> LeavingWorker:
    one = FixedSizeSlotSupplier(1)
    return LeavingWorker(
        client,
        task_queue=QUEUE,
        workflows=[Asked],
        workflow_runner=UnsandboxedWorkflowRunner(),
        sticky_queue_schedule_to_start_timeout=timedelta(milliseconds=200),
        max_concurrent_workflow_task_polls=2,
        tuner=WorkerTuner.create_composite(
            workflow_supplier=slots, activity_supplier=one, local_activity_supplier=one, nexus_supplier=one
        ),
        leaves_within_seconds=10,
    )


async def who_worked(handle: WorkflowHandle[Asked, None]) -> list[str]:
    return [
        event.workflow_task_completed_event_attributes.identity
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]


async def test_a_busy_workflow_is_worked_on_elsewhere_before_its_worker_leaves(
    temporal_dev_server: EmbeddedTemporal,
) -> None:
    first, second = [await Client.connect(temporal_dev_server.address, identity=name) for name in ("first", "second")]
    slots = WorkflowSlots()
    async with a_worker(first, slots):
        handle = await first.start_workflow(Asked.run, id="asked", task_queue=QUEUE)
        await handle.execute_update(Asked.ask)
        running_out = asyncio.create_task(slots.run_out(30))
        async with a_worker(second, WorkflowSlots()), asyncio.timeout(60):
            while not running_out.done() or (await who_worked(handle))[-1] != "second":
                await handle.execute_update(Asked.ask)
            await handle.execute_update(Asked.ask)
            assert (await who_worked(handle))[-1] == "second"
            await handle.terminate()


async def test_a_slot_in_use_is_waited_for() -> None:
    slots = WorkflowSlots()
    slot = await slots.reserve_slot(_poll(sticky=True))
    running_out = asyncio.create_task(slots.run_out(30))
    await asyncio.sleep(0)
    assert not running_out.done()
    slots.release_slot(SlotReleaseContext(None, slot))
    await running_out


async def test_a_workflow_that_is_worked_on_is_waited_for() -> None:
    slots = WorkflowSlots()
    slot = await slots.reserve_slot(_poll(sticky=False))
    slots.mark_slot_used(Use(slot))  # type: ignore[arg-type]
    running_out = asyncio.create_task(slots.run_out(30))
    await asyncio.sleep(0)
    assert not running_out.done()
    slots.release_slot(SlotReleaseContext(None, slot))
    await running_out


async def test_a_poll_that_brings_nothing_is_not_waited_for_any_longer_than_said() -> None:
    slots = WorkflowSlots()
    await slots.reserve_slot(_poll(sticky=True))
    await slots.run_out(0.01)


async def test_a_poll_for_any_workflow_is_not_waited_for() -> None:
    slots = WorkflowSlots()
    await slots.reserve_slot(_poll(sticky=False))
    async with asyncio.timeout(10):
        await slots.run_out(1000)


async def test_no_slot_is_given_after_they_ran_out() -> None:
    slots = WorkflowSlots()
    await slots.run_out(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(slots.reserve_slot(_poll(sticky=False)), 0.01)


def _poll(*, sticky: bool) -> SlotReserveContext:
    return Context(is_sticky=sticky)  # type: ignore[return-value]
