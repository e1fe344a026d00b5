"""The worker's readiness: whether the database and Temporal answer, and the health of its hosts' writers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from temporalio.client import Client
from temporalio.service import RPCError

from oldhost_sync.role_server import Readiness
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.store.views.readiness import check_reads
from oldhost_sync.writer_health import is_task_queue_polled, trouble, writer_health

LOOK_SECONDS = 5.0
# A description takes some milliseconds of Temporal's time; a hundred hosts are checked in turn.
HOSTS_AT_A_TIME = 20


async def watch_readiness(
    engine: Engine,
    client: Client,
    hosts: Sequence[str],
    readiness: Readiness,
    more: Callable[[], dict[str, str]] = dict,
) -> None:
    """Until cancelled. `more`: other troubles of this worker."""
    writers: dict[str, str] = {}
    first = 0
    while True:
        page = [hosts[(first + number) % len(hosts)] for number in range(min(HOSTS_AT_A_TIME, len(hosts)))]
        first += len(page)
        database = await asyncio.to_thread(_database_trouble, engine)
        temporal = await _ask_temporal(client, page, writers)
        readiness.found({"database": database, "temporal": temporal} | writers | more())
        await asyncio.sleep(LOOK_SECONDS)


async def _ask_temporal(client: Client, hosts: Sequence[str], writers: dict[str, str]) -> str:
    try:
        polled = await is_task_queue_polled(client)

        async def known() -> bool:
            return polled

        for host in hosts:
            writers[f"writer {host}"] = trouble(await writer_health(client, host, is_polled=known))
    except (RPCError, RuntimeError) as error:
        status = error.status.name.lower().replace("_", " ") if isinstance(error, RPCError) else "no answer"
        return f"Temporal does not answer ({status})"
    return ""


def _database_trouble(engine: Engine) -> str:
    try:
        run_in_transaction(engine, check_reads, attempts=1)
    except (StoreError, DBAPIError) as error:
        return f"the database does not answer ({type(error).__name__})"
    return ""
