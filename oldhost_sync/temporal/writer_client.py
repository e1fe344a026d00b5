"""The client of a writer: queries and operators' updates through Temporal, each with a timeout.

If no answer arrives, Temporal's records show why (see `writer_health`): :class:`WriterUnavailable` names the cause, and
the caller words the message.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum, auto
from typing import Any

from temporalio.client import (
    Client,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateHandle,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.common import QueryRejectCondition
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from oldhost_sync.policy.rules.operator_act import sign
from oldhost_sync.temporal.client import SharedClient, TemporalUnavailable, connect, writer_handle
from oldhost_sync.temporal.writer_health import WriterState, is_no_namespace, is_no_workflow, writer_health
from workflows.messages import NoRoom, OperatorAct

# A number that is used only once, in a signature.
NONCE_BYTES = 16
# A writer takes an act in its next task, some milliseconds later. If one that answers queries does not within this
# share of an act's time, Temporal's places for acts are taken.
TAKEN_SHARE = 0.5
# What the SDK raises for a run whose status it does not know.
_UNKNOWN_STATUS = "is not a valid WorkflowExecutionStatus"


class Cause(Enum):
    """Why there is no answer."""

    NOT_CONNECTED = auto()  # no connection to Temporal
    NO_TEMPORAL = auto()  # connected once, but Temporal does not answer now
    NO_NAMESPACE = auto()  # Temporal knows no namespace of that name
    NO_WRITER = auto()  # never started, or ended
    PAUSED_IN_TEMPORAL = auto()  # a person paused the run with Temporal's tools
    FAILING = auto()  # the run's workflow task fails
    NO_WORKER = auto()  # no worker takes its tasks
    TOO_SLOW = auto()  # it runs, but did not answer in time


class WriterError(Exception):
    """The writer did not do what was asked. `host`: whose writer.

    `may_be_done`: it was an update that was sent, and may still be carried out.
    """

    def __init__(self, host: str, reason: str, *, may_be_done: bool = False) -> None:
        super().__init__(reason)
        self.host = host
        self.may_be_done = may_be_done


class WriterUnavailable(WriterError):  # noqa: N818 - says what happened
    """The writer can't be reached; try again later. `str` is what Temporal's records say; empty if `cause` says all.
    `cure`: what they advise, if it is not what this cause usually needs.
    """

    def __init__(self, host: str, cause: Cause, reason: str = "", *, cure: str = "", may_be_done: bool = False) -> None:
        super().__init__(host, reason, may_be_done=may_be_done)
        self.cause = cause
        self.cure = cure


class UpdateRefused(WriterError):  # noqa: N818 - says what happened
    """The writer refused the update in its present state; `str` is its reason. Nothing was changed."""

    def __init__(self, host: str, name: str, reason: str) -> None:
        super().__init__(host, reason)
        self.name = name


class WriterBusy(WriterError):  # noqa: N818 - says what happened
    """Other requests are being carried out, and no more may wait; `str` says whose limit it is."""


class QueryRefused(WriterError):  # noqa: N818 - says what happened
    """The caller's error: the writer can't answer such a query."""


@dataclass(eq=False)
class WriterClient:
    """The writer of `host`. `connect` is called at the first use; connecting and a query may take `query_seconds` each.

    The first of `act_keys` signs operators' actions; without any they are not signed.
    """

    host: str
    query_seconds: float
    update_seconds: float
    connect: Callable[[], Awaitable[Client]] = connect
    act_keys: Sequence[str] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        self._client = SharedClient(self.connect, self.query_seconds)

    async def query(self, name: str, *arguments: object) -> Any:
        """Returns the answer to the query `name`."""
        client = await self._connected()
        question = writer_handle(client, self.host).query(
            name,
            args=list(arguments),
            # A closed run answers queries as if it were running.
            reject_condition=QueryRejectCondition.NOT_OPEN,
            rpc_timeout=timedelta(seconds=self.query_seconds),
        )
        try:
            return await self._answer(client, question, self.query_seconds)
        except WorkflowQueryRejectedError:
            raise WriterUnavailable(self.host, Cause.NO_WRITER) from None
        except ValueError as error:
            if _UNKNOWN_STATUS not in str(error):
                raise
            raise await self._why_not(client, error) from None  # the run that rejected it is paused
        except WorkflowQueryFailedError as error:
            why = await self._why_not(client, error)
            raise why if why.cause is Cause.FAILING else QueryRefused(self.host, str(error)) from None

    async def update(self, name: str, act: OperatorAct) -> Any:
        """Carry out the update `name`; returns its answer."""
        client = await self._connected()
        began = time.monotonic()
        taken = None
        try:
            taken = await self._taken(client, name, self._signed(replace(act, host=self.host, action=name)))
            left = began + self.update_seconds - time.monotonic()
            return await self._answer(client, taken.result(rpc_timeout=timedelta(seconds=left)), left)
        except WriterUnavailable as error:
            error.may_be_done = taken is not None or error.cause not in {Cause.NO_WRITER, Cause.NO_NAMESPACE}
            raise
        except WriterBusy:
            if taken is None:
                raise
            raise WriterUnavailable(self.host, Cause.TOO_SLOW, may_be_done=True) from None
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            reason = cause.message if isinstance(cause, ApplicationError) else str(cause)
            if isinstance(cause, ApplicationError) and cause.type == NoRoom.__name__:
                raise WriterBusy(self.host, reason) from None
            raise UpdateRefused(self.host, name, reason) from None

    async def tell(self, name: str, argument: object) -> None:
        """Send the signal `name`."""
        client = await self._connected()
        limit = timedelta(seconds=self.query_seconds)
        signal = writer_handle(client, self.host).signal(name, argument, rpc_timeout=limit)
        await self._answer(client, signal, self.query_seconds)

    async def _taken(self, client: Client, name: str, act: OperatorAct) -> WorkflowUpdateHandle[Any]:
        """The update, accepted or refused by the writer. When Temporal refuses it for its limit of updates in flight,
        the SDK repeats it for 12 to 16 s, so that this refusal itself would come too late.
        """
        seconds = self.update_seconds * TAKEN_SHARE
        asked = writer_handle(client, self.host).start_update(
            name, act, wait_for_stage=WorkflowUpdateStage.ACCEPTED, rpc_timeout=timedelta(seconds=seconds)
        )
        try:
            taken: WorkflowUpdateHandle[Any] = await self._answer(client, asked, seconds)
        except WriterUnavailable as error:
            if error.cause is not Cause.TOO_SLOW:
                raise
            await self.query("status")
            took = f"it took no further act for {seconds:g} s (Temporal lets ten wait)"
            raise WriterBusy(self.host, took, may_be_done=True) from None
        return taken

    def _signed(self, act: OperatorAct) -> OperatorAct:
        key = next(iter(self.act_keys), "")
        if not key:
            return act
        now_ms, nonce = time.time_ns() // 1_000_000, secrets.token_hex(NONCE_BYTES)
        return replace(act, signature=sign(act, key, now_ms=now_ms, nonce=nonce))

    async def _connected(self) -> Client:
        try:
            return await self._client.get()
        except TemporalUnavailable as error:
            raise WriterUnavailable(self.host, Cause.NOT_CONNECTED, str(error)) from None
        except (RPCError, RuntimeError, TimeoutError):
            raise WriterUnavailable(self.host, Cause.NOT_CONNECTED) from None

    async def _answer(self, client: Client, question: Awaitable[Any], seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await question
        except (RPCError, TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            if isinstance(error, RPCError) and error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
                raise WriterBusy(self.host, f"Temporal takes no more requests now ({error})") from None
            raise await self._why_not(client, error) from None

    async def _why_not(self, client: Client, error: Exception) -> WriterUnavailable:
        if isinstance(error, RPCError) and is_no_workflow(error):
            return WriterUnavailable(self.host, Cause.NO_WRITER)
        try:
            async with asyncio.timeout(self.query_seconds):
                health = await writer_health(client, self.host)
        except (RPCError, TimeoutError) as away:
            if isinstance(away, RPCError) and is_no_namespace(away):
                return WriterUnavailable(self.host, Cause.NO_NAMESPACE, "Temporal has no namespace of this name")
            return WriterUnavailable(self.host, Cause.NO_TEMPORAL)
        return WriterUnavailable(self.host, _CAUSES[health.state], health.error, cure=health.advice)


_CAUSES = {
    WriterState.RUNNING: Cause.TOO_SLOW,
    WriterState.MISSING: Cause.NO_WRITER,
    WriterState.CLOSED: Cause.NO_WRITER,
    WriterState.PAUSED_IN_TEMPORAL: Cause.PAUSED_IN_TEMPORAL,
    WriterState.FAILING: Cause.FAILING,
    WriterState.NO_WORKER: Cause.NO_WORKER,
}
