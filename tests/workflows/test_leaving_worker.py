"""A Worker leaves in time, whatever the SDK waits for."""

from __future__ import annotations

import asyncio

import pytest
from temporalio import activity

from oldhost_sync.roles.sdk_worker import LeavingWorker
from tests.workflows.conftest import Stage

pytestmark = pytest.mark.temporal


@activity.defn
async def nothing() -> None:
    pass


async def test_a_worker_leaves_though_the_sdk_missed_the_end_of_its_last_activity(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def never_ends(bridge: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("temporalio.bridge.worker.Worker.finalize_shutdown", never_ends)
    worker = LeavingWorker(stage.env.client, task_queue="leaving", activities=[nothing], leaves_within_seconds=0.1)
    async with worker:
        pass
    assert worker.is_shutdown
    assert "did not stop within 0.1 s" in caplog.text
