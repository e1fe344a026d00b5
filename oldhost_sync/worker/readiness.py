"""The worker's readiness: whether the database and Temporal answer, and the health of its hosts' writers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from sqlalchemy.engine import Engine
from temporalio.client import Client
from temporalio.service import RPCError

from oldhost_sync.probes.health import NEEDS_POLL_SECONDS, Readiness, troubles
from oldhost_sync.probes.needs import database_need, temporal_need
from oldhost_sync.temporal.task_queue import QueueState, TaskSights
from oldhost_sync.temporal.writer_health import queue_state, trouble, writer_health

# Describing a writer costs Temporal some milliseconds, so a hundred hosts are checked in several rounds.
HOSTS_AT_A_TIME = 20
WRITERS_POLL_SECONDS = 5.0


async def watch_readiness(
    autocommit_engine: Engine,
    client: Client,
    hosts: Sequence[str],
    readiness: Readiness,
    more: Callable[[], dict[str, str]] = dict,
) -> None:
    """Check until cancelled. `more`: other troubles of this worker."""

    async def connected() -> Client:
        return client

    writers: dict[str, str] = {}
    needs = database_need(autocommit_engine, "worker"), temporal_need(connected)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_watch_writers(client, hosts, writers))
        while True:
            readiness.found(await troubles(needs) | writers | more())
            await asyncio.sleep(NEEDS_POLL_SECONDS)


async def _watch_writers(client: Client, hosts: Sequence[str], found: dict[str, str]) -> None:
    """Keep in `found` what is wrong with each host's writer, as of the last time that Temporal answered."""
    first, sights = 0, TaskSights()
    while True:
        page = [hosts[(first + number) % len(hosts)] for number in range(min(HOSTS_AT_A_TIME, len(hosts)))]
        first += len(page)
        with contextlib.suppress(RPCError, RuntimeError):  # Temporal has its own check
            found |= await _troubles_of_writers(client, page, sights)
        await asyncio.sleep(WRITERS_POLL_SECONDS)


async def _troubles_of_writers(client: Client, hosts: Sequence[str], sights: TaskSights) -> dict[str, str]:
    queue = await queue_state(client)

    async def known() -> QueueState:
        return queue

    seen = {host: await writer_health(client, host, queue=known, sights=sights) for host in hosts}
    return {f"writer {host}": trouble(health) if health.hinders_roles else "" for host, health in seen.items()}
