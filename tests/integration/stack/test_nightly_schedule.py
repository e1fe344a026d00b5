"""The schedule of the nightly resync as Temporal has it, and as somebody made or changed it there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import time, timedelta

import pytest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
    ScheduleUpdate,
)

from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.nightly_resync import (
    NightlySchedule,
    end_nightly_schedule,
    handle_of,
    nightly_schedule,
    set_nightly_schedule,
)
from workflows.messages import NIGHTLY_RESYNC_TYPE, TASK_QUEUE, NightlyResync, nightly_resync_id

pytestmark = pytest.mark.temporal
HOST = "nightly"
AT = time(3, 30)
Change = Callable[[Client], Awaitable[object]]


def seen_after(server: EmbeddedTemporal, change: Change) -> NightlySchedule | None:
    async def scenario() -> NightlySchedule | None:
        client = await Client.connect(server.address)
        try:
            await change(client)
            return await nightly_schedule(client, HOST)
        finally:
            await end_nightly_schedule(client, HOST)

    return asyncio.run(scenario())


async def ours(client: Client) -> None:
    await set_nightly_schedule(client, HOST, AT)


def scheduled(spec: ScheduleSpec, task_queue: str = TASK_QUEUE) -> Schedule:
    action = ScheduleActionStartWorkflow(NIGHTLY_RESYNC_TYPE, NightlyResync(HOST), id="resync", task_queue=task_queue)
    return Schedule(action, spec)


def made_by_hand(schedule: Schedule) -> Change:
    return lambda client: client.create_schedule(nightly_resync_id(HOST), schedule)


async def moved_to_another_queue(client: Client) -> None:
    await ours(client)

    def change(found: object) -> ScheduleUpdate:
        schedule: Schedule = found.description.schedule  # type: ignore[attr-defined]
        assert isinstance(schedule.action, ScheduleActionStartWorkflow)
        schedule.action.task_queue = "mistyped"
        return ScheduleUpdate(schedule)

    await handle_of(client, HOST).update(change)


def test_what_was_set_is_shown(temporal_dev_server: EmbeddedTemporal) -> None:
    seen = seen_after(temporal_dev_server, ours)
    assert seen is not None
    assert (seen.at, seen.paused, seen.next_at is not None) == (AT, False, True)


def test_what_was_set_twice_is_shown_as_set_last(temporal_dev_server: EmbeddedTemporal) -> None:
    async def twice(client: Client) -> None:
        await set_nightly_schedule(client, HOST, time(0, 0))
        await ours(client)

    seen = seen_after(temporal_dev_server, twice)
    assert seen is not None
    assert seen.at == AT


@pytest.mark.parametrize(
    "change",
    [
        made_by_hand(scheduled(ScheduleSpec(intervals=[ScheduleIntervalSpec(timedelta(hours=24))]))),
        made_by_hand(scheduled(ScheduleSpec(cron_expressions=["*/5 3 * * *"]))),
        made_by_hand(scheduled(ScheduleSpec(cron_expressions=["30 3 * * 1-5"]))),
        moved_to_another_queue,
    ],
    ids=["every 24 hours", "every five minutes", "on weekdays", "another queue"],
)
def test_one_that_was_made_or_changed_by_hand_is_not_said_to_be_ours(
    temporal_dev_server: EmbeddedTemporal, change: Change
) -> None:
    seen = seen_after(temporal_dev_server, change)
    assert seen is not None
    assert seen.at is None
