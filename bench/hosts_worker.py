"""A worker for many hosts: the product's activities and workflow, with an address for each host and threads for all.

`BENCH_HOSTS` is {"host": "http://address:port"} as JSON. What a deployment of many hosts on one namespace needs beside
worker.py is just this: the map, and two threads per host.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from prometheus_client import CollectorRegistry
from temporalio.worker import Worker

from activities.alerts import AlertActivities
from activities.recording import RecordingActivities
from activities.session import SessionActivities
from oldhost_sync.settings import Settings, load_settings
from oldhost_sync.store.engine import create_engine
from oldhost_sync.telemetry import WorkerMetrics
from oldhost_sync.temporal import connect
from worker import HEARTBEAT_INTERVAL, parse_address, session_limits
from workflows.messages import TASK_QUEUE
from workflows.sync_writer import SyncWriterWorkflow

DATABASE_CONNECTIONS = 16
# The SDK's five were not enough for fifty hosts' 125 tasks a second at some milliseconds each.
POLLS = 20


async def run(settings: Settings) -> None:
    addresses = {host: parse_address(url) for host, url in json.loads(os.environ["BENCH_HOSTS"]).items()}
    engine = create_engine(settings.need_database_url(), pool_size=DATABASE_CONNECTIONS)
    client = await connect()
    sessions = SessionActivities(
        engine=engine,
        addresses=addresses.__getitem__,
        task_queue=f"{TASK_QUEUE}-session-{os.getpid()}",
        owner=f"hosts-{os.getpid()}",
        limits=session_limits(settings),
        metrics=WorkerMetrics(CollectorRegistry()),
    )
    recording, alerts = RecordingActivities(engine), AlertActivities(engine)
    threading.Thread(target=sessions.watch, daemon=True).start()
    most = 2 * len(addresses) + 16
    with ThreadPoolExecutor(most + 16) as threads:
        shared = Worker(
            client,
            task_queue=TASK_QUEUE,
            workflows=[SyncWriterWorkflow],
            activities=[
                sessions.open_session,
                recording.record_submissions,
                recording.load_outstanding,
                recording.record_decision,
                alerts.raise_alert,
            ],
            activity_executor=threads,
            max_concurrent_activities=16,
            max_cached_workflows=2 * len(addresses),
            max_concurrent_workflow_task_polls=POLLS,
            max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
        )
        own = Worker(
            client,
            task_queue=sessions.task_queue,
            activities=[sessions.send, sessions.probe, sessions.close_session],
            activity_executor=threads,
            max_concurrent_activities=most,
            max_concurrent_activity_task_polls=POLLS,
            graceful_shutdown_timeout=timedelta(seconds=5),
            max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
        )
        async with own, shared:
            await asyncio.Event().wait()


if __name__ == "__main__":
    gc.set_threshold(50_000, 20, 100)
    asyncio.run(run(load_settings()))
