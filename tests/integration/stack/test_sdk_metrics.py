"""The Temporal SDK's own metrics, as a worker serves them beside its own: slots, and how long tasks wait for it."""

from __future__ import annotations

import asyncio
import re
import urllib.request
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import activity, workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from oldhost_sync.settings import SettingsError, load_settings
from oldhost_sync.stack.machine import free_port
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import SDK_METRICS, connect, sdk_runtime

NEEDED = (
    "worker_task_slots_used",
    "workflow_task_schedule_to_start_latency_seconds_bucket",
    "activity_schedule_to_start_latency_seconds_bucket",
)


def dashboards_names() -> set[str]:
    page = (Path(__file__).resolve().parents[3] / "deploy" / "grafana" / "oldhost-sync.json").read_text()
    return set(re.findall(rf"{SDK_METRICS}[a-z_]+", page))


@activity.defn
async def nothing() -> None:
    """Somebody must take it."""


@workflow.defn
class OneActivity:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(nothing, start_to_close_timeout=timedelta(seconds=60))


def test_a_worker_shows_the_sdks_slots_and_waits_in_our_name_space(
    temporal_dev_server: EmbeddedTemporal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_dev_server.address)
    bind = f"127.0.0.1:{free_port()}"
    runtime = sdk_runtime(load_settings(temporal_metrics_bind=bind))

    async def work() -> str:
        client = await connect(runtime)
        queue = f"metrics-{uuid.uuid4().hex}"
        worker = Worker(
            client, task_queue=queue, workflows=[OneActivity], activities=[nothing],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )  # fmt: skip
        async with worker:
            await client.execute_workflow(OneActivity.run, id=queue, task_queue=queue)
            return await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://{bind}/metrics").read().decode())

    page = asyncio.run(work())
    names = {line.split("{")[0].split(" ")[0] for line in page.splitlines() if line and not line.startswith("#")}
    assert {f"{SDK_METRICS}{name}" for name in NEEDED} <= names
    assert sorted(name for name in dashboards_names() if name not in names) == []
    assert [name for name in names if not name.startswith("oldhost_sync_")] == []


def test_an_address_that_is_taken_is_a_wrong_setting() -> None:
    bind = f"127.0.0.1:{free_port()}"
    held = sdk_runtime(load_settings(temporal_metrics_bind=bind))
    assert held is not None
    with pytest.raises(SettingsError, match="SYNC_TEMPORAL_METRICS_BIND"):
        sdk_runtime(load_settings(temporal_metrics_bind=bind))
