"""The routes' connection to the writer: errors become problems, and a writer that is known to be away is not asked.

Temporal may be away when the API starts: recording changes needs only the database.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from temporalio.client import Client

from oldhost_sync.api import http_limits
from oldhost_sync.api.bounded_waits import Circuit, Places
from oldhost_sync.api.problems import Problem, unavailable
from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.temporal.writer_client import (
    Cause,
    QueryRefused,
    UpdateRefused,
    WriterBusy,
    WriterClient,
    WriterError,
    WriterUnavailable,
)
from workflows.messages import OperatorAct

_PROBLEM_KINDS = {
    Cause.PAUSED_IN_TEMPORAL: "paused-in-temporal",
    Cause.FAILING: "writer-failing",
    Cause.NO_WORKER: "no-worker",
}


_STEPS = {
    "paused-in-temporal": "Unpause it there",
    "writer-failing": "Restart a worker that is stuck, or deploy the release that its run began with",
}


_FULL = "as many acts as may wait for the writer wait already; nothing was done"


class WriterLink(Protocol):
    """The requests that the routes make to the writer."""

    async def query(self, name: str, *arguments: object) -> Any: ...
    async def update(self, name: str, request: OperatorAct) -> str: ...
    async def tell(self, name: str, argument: object) -> bool: ...


class TemporalWriterLink:
    """A :class:`WriterLink` over Temporal. Raises a Problem when there is no answer in time."""

    def __init__(
        self,
        host: str,
        connect: Callable[[], Awaitable[Client]],
        *,
        act_keys: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = WriterClient(
            host,
            connect=connect,
            query_seconds=http_limits.WRITER_QUERY_SECONDS_MAX,
            update_seconds=http_limits.WRITER_UPDATE_SECONDS_MAX,
            act_keys=act_keys,
        )
        self._clock = clock
        self._circuit = Circuit(http_limits.WRITER_PROBE_SECONDS)
        self._acts = Places(http_limits.ACTS_AT_ONCE, http_limits.ACTS_WAITING_MAX, partial(writer_busy, _FULL))

    async def query(self, name: str, *arguments: object) -> Any:
        return await self._ask(lambda: self._writer.query(name, *arguments))

    async def update(self, name: str, request: OperatorAct) -> str:
        if self._circuit.is_open and self._acts.locked():
            raise self._circuit.problem()  # the acts before it wait for a writer that is away
        async with self._acts.turn(http_limits.ACTS_QUEUE_SECONDS_MAX):
            answer = await self._ask(lambda: self._writer.update(name, request))
        if isinstance(answer, str):
            return answer
        return f"{name}: {quantity(answer, 'waiting key')}" if isinstance(answer, int) else f"{name}: done"

    async def tell(self, name: str, argument: object) -> bool:
        """Signal the writer; False if that was not possible."""
        try:
            await self._ask(lambda: self._writer.tell(name, argument))
        except Problem:
            return False
        return True

    async def _ask(self, question: Callable[[], Awaitable[Any]]) -> Any:
        if not self._circuit.admits(self._clock()):
            raise self._circuit.problem()
        try:
            answer = await question()
        except WriterError as error:
            raise self._problem(error) from None
        self._circuit.succeeded()
        return answer

    def _problem(self, error: WriterError) -> Problem:
        if not isinstance(error, WriterUnavailable) or error.cause is Cause.NO_WRITER:
            return problem_of(error)
        self._circuit.failed(self._clock(), partial(_away, error))
        return problem_of(error) if error.may_be_done else self._circuit.problem()


def problem_of(error: WriterError) -> Problem:
    if isinstance(error, UpdateRefused):
        reason = str(error) or "It gave no reason."
        return Problem(409, "refused", f"The writer refused to {error.name}", reason, "See GET /api/writer/status.")
    if isinstance(error, WriterBusy):
        return writer_busy(str(error), may_be_done=error.may_be_done)
    if not isinstance(error, WriterUnavailable):
        assert isinstance(error, QueryRefused)
        return Problem(409, "query-refused", "The writer can't answer this query", str(error), "Check the query.")
    if error.cause is Cause.NO_WRITER:
        ended = "the writer was never started, or has ended; the relay starts it"
        return writer_away(ended, "writer-missing", may_be_done=error.may_be_done)
    return _away(error, may_be_done=error.may_be_done)


def _away(error: WriterUnavailable, *, may_be_done: bool = False) -> Problem:
    kind = _PROBLEM_KINDS.get(error.cause, "writer-away")
    reason = str(error) or "Temporal or the worker does not answer"
    return writer_away(reason, kind, cure=error.cure, may_be_done=may_be_done)


MAY_BE_DONE = " The act may still be carried out."


def writer_busy(reason: str, *, may_be_done: bool = False) -> Problem:
    return unavailable(
        "writer-busy",
        "The writer is carrying out other requests",
        f"{reason[:1].upper()}{reason[1:]}.{MAY_BE_DONE if may_be_done else ''}",
        "Look at the status before you repeat it." if may_be_done else "Repeat the request in a moment.",
    )


def writer_away(reason: str, kind: str = "writer-away", *, cure: str = "", may_be_done: bool = False) -> Problem:
    """`may_be_done`: the request was an act that was sent. `cure`: what Temporal's records advise."""
    todo = f"{cure[:1].upper()}{cure[1:]}" if cure else _STEPS.get(kind, "Check that Temporal and a worker are running")
    repeat = "then look at the status before you repeat it" if may_be_done else "then repeat the request"
    problem = unavailable(
        kind,
        "The writer can't be reached",
        f"{reason[:1].upper()}{reason[1:]}.{MAY_BE_DONE if may_be_done else ''}",
        f"{todo}, {repeat}. Changes are still accepted.",
        retry_after=max(1, round(http_limits.WRITER_PROBE_SECONDS)),
    )
    problem.cure = cure
    return problem
