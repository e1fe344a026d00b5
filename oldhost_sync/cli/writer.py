"""Asking the writer: queries and operators' updates through Temporal, with bounded waits and plain words when it is away."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio.client import (
    Client,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import QueryRejectCondition
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from oldhost_sync import temporal
from oldhost_sync.settings import Settings
from oldhost_sync.user_errors import START_TEMPORAL, CliError
from oldhost_sync.writer_health import WriterState, writer_health
from workflows.messages import OperatorRequest

CONNECT_SECONDS_MAX = 5.0
# A query needs one workflow task: milliseconds, unless no worker runs.
QUERY_SECONDS_MAX = 5.0
# An update also writes to the books, and tries again while the database is away.
UPDATE_SECONDS_MAX = 15.0


def query(settings: Settings, name: str, *arguments: object) -> Any:
    """The writer's answer; CliError says why there is none."""
    return asyncio.run(ask(settings, name, *arguments))


async def ask(settings: Settings, name: str, *arguments: object, client: Client | None = None) -> Any:
    """As `query`, inside a running loop and over a connection that may be kept."""
    client = client or await connect()
    handle = temporal.writer_handle(client, settings.host)
    limit = timedelta(seconds=QUERY_SECONDS_MAX)

    def question() -> Awaitable[Any]:
        open_only = QueryRejectCondition.NOT_OPEN  # a closed run answers queries as if it lived
        return handle.query(name, args=list(arguments), reject_condition=open_only, rpc_timeout=limit)

    return await _answer(settings, client, question, limit)


def update(settings: Settings, name: str, request: OperatorRequest) -> Any:
    """Carry out an operator's act; CliError with the writer's own reason when it refuses."""
    return asyncio.run(_update(settings, name, request))


async def _update(settings: Settings, name: str, request: OperatorRequest) -> Any:
    client = await connect()
    handle = temporal.writer_handle(client, settings.host)
    limit = timedelta(seconds=UPDATE_SECONDS_MAX)
    try:
        return await _answer(settings, client, lambda: handle.execute_update(name, request, rpc_timeout=limit), limit)
    except WorkflowUpdateFailedError as error:
        cause = error.cause
        reason = cause.message if isinstance(cause, ApplicationError) else str(cause)
        raise CliError(f"the writer refused to {name}: {reason}.") from None


async def connect() -> Client:
    """A connection to Temporal; CliError when there is none in time."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            return await temporal.connect()
    except (RuntimeError, RPCError, TimeoutError):
        raise CliError(f"Temporal can't be reached. {START_TEMPORAL}") from None


async def _answer(settings: Settings, client: Client, question: Callable[[], Awaitable[Any]], limit: timedelta) -> Any:
    try:
        async with asyncio.timeout(limit.total_seconds() + 1):
            return await question()
    except WorkflowQueryRejectedError:
        raise _not_running(settings) from None
    except WorkflowQueryFailedError as error:
        raise CliError(f"the writer can't say: {error}.") from None
    except (RPCError, TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
        raise await _why_not(settings, client, error) from None


async def _why_not(settings: Settings, client: Client, error: Exception) -> CliError:
    """Why the writer did not answer, by Temporal's own books."""
    if isinstance(error, RPCError) and error.status == RPCStatusCode.NOT_FOUND:
        return _not_running(settings)
    try:
        async with asyncio.timeout(QUERY_SECONDS_MAX):
            health = await writer_health(client, settings.host)
    except (RPCError, TimeoutError):
        return CliError(f"Temporal does not answer. {START_TEMPORAL}")
    if health.state in (WriterState.MISSING, WriterState.CLOSED):
        return _not_running(settings)
    if health.state is WriterState.FAILING:
        return CliError(
            f"the writer of {settings.host!r} is stuck: {health.error}. Deploy the release that it was begun with, or "
            "terminate its run in Temporal: the relay starts another."
        )
    return CliError("the writer does not answer. Start a worker: `oldhost-sync worker`.")


def _not_running(settings: Settings) -> CliError:
    return CliError(
        f"the writer of {settings.host!r} is not running. A relay starts it, and so does `python starter.py`."
    )


def operator_name(given: str | None) -> str:
    """Who acts: as given, or the user of this machine."""
    if given:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise CliError("say who you are: --operator NAME.", 2) from None
