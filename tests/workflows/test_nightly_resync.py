"""What the Schedule starts each night, on Temporal's own server."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Replayer, Worker

from oldhost_sync.temporal.client import DATA_CONVERTER
from tests.workflows.conftest import Stage
from workflows.messages import NIGHTLY_RESYNC_TYPE, NightlyResync
from workflows.nightly_resync import NightlyResyncWorkflow

pytestmark = pytest.mark.temporal


async def test_a_night_asks_for_one_resync_also_when_the_database_was_away_and_replays(stage: Stage) -> None:
    asked: list[NightlyResync] = []

    @activity.defn
    async def request_nightly_resync(nightly: NightlyResync) -> int:
        asked.append(nightly)
        if len(asked) < 3:
            raise ApplicationError("the database is away")
        return 7

    client, queue = stage.env.client, f"nights-{uuid.uuid4().hex}"
    async with Worker(client, task_queue=queue, workflows=[NightlyResyncWorkflow], activities=[request_nightly_resync]):
        handle = await client.start_workflow(NIGHTLY_RESYNC_TYPE, NightlyResync("seaview"), id=queue, task_queue=queue)
        assert await handle.result() == 7
        assert asked == [NightlyResync("seaview")] * 3
        history = await handle.fetch_history()
    replayer = Replayer(workflows=[NightlyResyncWorkflow], data_converter=DATA_CONVERTER)
    assert (await replayer.replay_workflow(history)).replay_failure is None


async def test_a_night_that_is_cancelled_while_the_database_is_away_ends_as_cancelled(stage: Stage) -> None:
    asked = asyncio.Event()

    @activity.defn
    async def request_nightly_resync(nightly: NightlyResync) -> int:
        asked.set()
        raise ApplicationError("the database is away")

    client, queue = stage.env.client, f"nights-{uuid.uuid4().hex}"
    async with Worker(client, task_queue=queue, workflows=[NightlyResyncWorkflow], activities=[request_nightly_resync]):
        handle = await client.start_workflow(NIGHTLY_RESYNC_TYPE, NightlyResync("seaview"), id=queue, task_queue=queue)
        await asyncio.wait_for(asked.wait(), 30)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()
        assert isinstance(ended.value.cause, CancelledError)
