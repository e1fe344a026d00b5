"""The way to the writer's workflow: queries and operators' updates, with bounded waits and plain words when it is away.

Temporal may be away while the API starts: it connects when first asked, and while Temporal is known to be away it asks
again only every so often. Changes don't need it: they go to the database.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol

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

from oldhost_sync.api import limits
from oldhost_sync.api.database import Circuit
from oldhost_sync.api.problems import Conflict, Problem, Unavailable
from oldhost_sync.temporal import writer_handle
from oldhost_sync.writer_health import WriterState, writer_health
from workflows.messages import OperatorRequest


class WriterLink(Protocol):
    """What the routes ask of the writer."""

    async def query(self, name: str, *arguments: object) -> Any: ...
    async def update(self, name: str, request: OperatorRequest) -> str: ...


class TemporalWriterLink:
    """A :class:`WriterLink` over Temporal."""

    def __init__(
        self, host: str, connect: Callable[[], Awaitable[Client]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host = host
        self._connect = connect
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._clock = clock
        self._circuit = Circuit(limits.WRITER_PROBE_SECONDS)

    async def query(self, name: str, *arguments: object) -> Any:
        """The answer of the query `name`; a Problem when there is none in time."""
        handle = writer_handle(await self._reach(), self._host)
        try:
            async with asyncio.timeout(limits.WRITER_QUERY_SECONDS_MAX):
                answer = await handle.query(
                    name,
                    args=list(arguments),
                    # A closed run answers queries as if it lived.
                    reject_condition=QueryRejectCondition.NOT_OPEN,
                    rpc_timeout=timedelta(seconds=limits.WRITER_QUERY_SECONDS_MAX),
                )
        except WorkflowQueryRejectedError:
            raise _missing() from None
        except WorkflowQueryFailedError as error:
            raise Conflict("query-refused", "The writer can't say", str(error), "Check the question.") from None
        except (RPCError, TimeoutError) as error:
            raise await self._why_not(error) from None
        self._circuit.succeeded()
        return answer

    async def update(self, name: str, request: OperatorRequest) -> str:
        """Carry out an operator's act; Conflict with the writer's reason when it makes no sense now."""
        handle = writer_handle(await self._reach(), self._host)
        try:
            async with asyncio.timeout(limits.WRITER_UPDATE_SECONDS_MAX):
                answer = await handle.execute_update(
                    name, request, rpc_timeout=timedelta(seconds=limits.WRITER_UPDATE_SECONDS_MAX)
                )
        except WorkflowUpdateFailedError as error:
            raise _refused(name, error) from None
        except (RPCError, TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise await self._why_not(error) from None
        self._circuit.succeeded()
        return _message(name, answer)

    async def _reach(self) -> Client:
        if not self._circuit.admits(self._clock()):
            raise writer_away(self._circuit.reason)
        async with self._connecting:
            if self._client is None:
                try:
                    async with asyncio.timeout(limits.WRITER_QUERY_SECONDS_MAX):
                        self._client = await self._connect()
                except (RPCError, RuntimeError, TimeoutError) as error:
                    raise self._away(error) from None
            return self._client

    async def _why_not(self, error: Exception) -> Problem:
        """Why the writer did not answer, by Temporal's own books: it ended, its code fails, or nobody takes its tasks."""
        if isinstance(error, RPCError) and error.status == RPCStatusCode.NOT_FOUND:
            return _missing()
        if self._client is None:
            return self._away(error)
        try:
            async with asyncio.timeout(limits.WRITER_QUERY_SECONDS_MAX):
                health = await writer_health(self._client, self._host)
        except (RPCError, TimeoutError):
            return self._away(error)
        if health.state in (WriterState.MISSING, WriterState.CLOSED):
            return _missing()
        if health.runs:
            return self._away(error)
        kind = "writer-failing" if health.state is WriterState.FAILING else "no-worker"
        self._circuit.failed(self._clock(), health.error)
        return writer_away(health.error, kind)

    def _away(self, _: Exception) -> Problem:
        reason = "Temporal or the worker does not answer"
        self._circuit.failed(self._clock(), reason)
        return writer_away(reason)


def _missing() -> Unavailable:
    return writer_away("the writer was never started, or has ended; the relay starts it", "writer-missing")


def writer_away(reason: str, kind: str = "writer-away") -> Unavailable:
    return Unavailable(
        kind,
        "The writer can't be reached",
        f"{reason[:1].upper()}{reason[1:]}.",
        "Check Temporal and that a worker runs, then repeat. Changes are accepted meanwhile.",
        retry_after=max(1, round(limits.WRITER_PROBE_SECONDS)),
    )


def _refused(name: str, error: WorkflowUpdateFailedError) -> Conflict:
    cause = error.cause
    reason = cause.message if isinstance(cause, ApplicationError) else str(cause)
    return Conflict(
        "refused", f"The writer refused to {name}", reason or "It gave no reason.", "See GET /api/writer/status."
    )


def _message(name: str, answer: object) -> str:
    if isinstance(answer, str):
        return answer
    return f"{name}: {answer} waiting key(s)" if isinstance(answer, int) else f"{name}: done"
