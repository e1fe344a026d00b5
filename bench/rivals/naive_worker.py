"""The naive workflow's worker, with a relay in it: the product's own session, so that only the workflow differs.

One worker and one queue, as one writes it first; its activities begin without a round trip of their own (eagerly).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from prometheus_client import CollectorRegistry
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from bench.rivals.naive_workflow import WORKFLOW_TYPE, NaiveWriter
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.relay.relay import Relay
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.roles.process import hold_many_objects, share_among_threads
from oldhost_sync.roles.worker import session_activities
from oldhost_sync.settings import Settings, load_settings
from oldhost_sync.store.engine import create_engine
from oldhost_sync.telemetry import WorkerMetrics
from oldhost_sync.temporal.client import connect
from workflows.messages import EnqueueBatch, to_wire, workflow_id

TASK_QUEUE = "naive"


async def run(settings: Settings) -> None:
    client = await connect()
    engine = create_engine(settings.need_database_url(), pool_size=6)
    sessions = session_activities(settings, engine, WorkerMetrics(CollectorRegistry()))
    heartbeats = timedelta(seconds=1)
    with ThreadPoolExecutor(8) as threads:
        worker = Worker(
            client,
            task_queue=TASK_QUEUE,
            workflows=[NaiveWriter],
            activities=[sessions.open_session, sessions.send],
            activity_executor=threads,
            max_heartbeat_throttle_interval=heartbeats,
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
        )

        async def signal(refs: list[ChangeRef]) -> None:
            await _signal(client, settings, refs)

        async with worker:
            await signal([])  # the workflow runs before the first change comes, as the product's does
            await Relay(Transactions(engine), signal, settings.host, owner="naive").run(asyncio.Event())


async def _signal(client: Client, settings: Settings, refs: list[ChangeRef]) -> None:
    await client.start_workflow(
        WORKFLOW_TYPE,
        args=[settings.host, round(settings.debounce_seconds * 1000), []],
        id=workflow_id(settings.host),
        task_queue=TASK_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal="enqueue",
        start_signal_args=[EnqueueBatch([to_wire(ref) for ref in refs])],
    )


def main() -> None:
    share_among_threads()
    hold_many_objects()
    asyncio.run(run(load_settings()))


if __name__ == "__main__":
    main()
