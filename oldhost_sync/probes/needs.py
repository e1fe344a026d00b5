"""What relay and worker need: a MariaDB that takes writes, and Temporal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from temporalio.client import Client
from temporalio.service import RPCError

from oldhost_sync.probes.health import ANSWER_SECONDS_MAX, Need
from oldhost_sync.store.engine import check_reads, check_writes
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.transactions import poll
from oldhost_sync.temporal.writer_health import queue_state


def database_need(autocommit_engine: Engine, role: str) -> Need:
    """`autocommit_engine` has a connection for this alone. `role`: relay or worker."""

    async def ask() -> str:
        return await asyncio.to_thread(_database_trouble, autocommit_engine, role)

    return Need("database", ask, "the database does not answer")


def temporal_need(connected: Callable[[], Awaitable[Client]]) -> Need:
    """`connected` returns the client; it may raise the errors of connecting."""

    async def ask() -> str:
        try:
            await queue_state(await connected(), timedelta(seconds=ANSWER_SECONDS_MAX))
        except RPCError as error:
            return f"Temporal does not answer ({error.status.name.lower().replace('_', ' ')})"
        except (RuntimeError, TimeoutError) as error:
            return f"Temporal can't be reached ({type(error).__name__})"
        return ""

    return Need("temporal", ask, "Temporal does not answer")


def _database_trouble(autocommit_engine: Engine, role: str) -> str:
    try:
        poll(autocommit_engine, partial(_check, role=role))
    except (StoreError, DBAPIError) as error:
        return f"the database does not take writes ({type(error).__name__})"
    return ""


def _check(connection: Connection, role: str) -> None:
    check_reads(connection)
    check_writes(connection, role)
