"""Recovers signals that earlier runs of the writer left unread: acknowledged by Temporal, but not recorded.

A run that ends by continue-as-new passes everything on. A run that ends otherwise (terminated, failed, ended by the
server because its history is too large, reset) leaves signals in its history. The next run has the histories read here,
back to the last run that got everything from its predecessor. Each signal gets the key that its own run would have
given it, so that no change is recorded twice. If a history is gone, an alert is raised.

A reset run begins with a copy of another run's history, and gets the signals of all following runs again
(`RepeatedSignals`). Activities run in threads, requests to Temporal on the worker's event loop (`TemporalHistories`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy.engine import Connection, Engine
from temporalio import activity
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
)
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities import calling_writer
from activities.submissions import record_or_leave
from oldhost_sync.policy.limits import RETENTION_DAYS
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import TransactionContended
from oldhost_sync.store.intake.change_recorder import known_hashes, wrote_before
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.temporal.payload_encryption import KeyMissing
from workflows import intake, messages
from workflows.intake import signal_key
from workflows.messages import Submission, workflow_id

logger = logging.getLogger(__name__)

# If this many runs in a row did not get everything from their predecessors, something keeps ending them.
RUNS_MAX = 200
SIGNALS_LOST = "signals-lost"
ALL_EARLIER = "all earlier ones"
# Temporal's and the database's clocks differ by less than this; no history is deleted this early.
CLOCKS_APART = timedelta(minutes=10)
# How many keys are looked up at a time.
BATCH = 50
# Temporal lists a run a moment after it began; once the calling run is listed, so are all earlier ones. Until then the
# activity fails, and Temporal retries it after this time.
LISTED_AGAIN = timedelta(seconds=1)
RUNS_LISTED_MAX = 1_000
HEARTBEAT_SECONDS = 1.0
SUBMIT_CHANGE = "submit_change"

T = TypeVar("T")
Heartbeat = Callable[[], None]


class HistoryGone(Exception):  # noqa: N818 - it says what happened
    """Temporal has deleted this run's history."""


@dataclass(frozen=True, slots=True)
class RunStart:
    """How a run began. `original_run_id`: its own, or after a reset that of the run whose history was copied."""

    run_id: str
    original_run_id: str
    continued_run_id: str
    given: messages.WriterInput

    @property
    def is_reset(self) -> bool:
        return self.original_run_id != self.run_id


@dataclass(frozen=True, slots=True)
class SignalEvent:
    """One `submit_change` signal of a run, not decoded. `given_again`: it stands where a reset gives signals again."""

    request_id: str
    at: datetime
    payload: Payload
    given_again: bool = False


@dataclass(slots=True)
class RunEvents:
    """The relevant part of a run's history. `gives_again`: what is read next was given again by a reset."""

    signals: list[SignalEvent] = field(default_factory=list)
    gives_again: bool = False


class Histories(Protocol):
    """Access to runs' histories."""

    def runs_before(self, host: str, run_id: str, heartbeat: Heartbeat) -> list[str]:
        """Ids of the runs that began before this one, the latest first."""

    def start_of(self, host: str, run_id: str) -> RunStart: ...
    def events_of(self, host: str, run_id: str, heartbeat: Heartbeat) -> RunEvents: ...


@dataclass(frozen=True, slots=True)
class RecoveryActivities:
    """Reads histories, writes the database; has no state. `changes_kept_days`: how long retention keeps changes, and so
    the keys that show whether a signal is recorded.
    """

    engine: Engine
    histories: Histories
    changes_kept_days: int = RETENTION_DAYS

    @activity.defn(no_thread_cancel_exception=True)
    def recover_submissions(self, request: messages.Recovery) -> messages.Recovered:
        """Idempotent, and cheap to repeat: keys that are already recorded are looked up, 50 at a time."""
        host, recovered = calling_writer.host(), messages.Recovered()
        runs = self._runs_to_read(host, request, recovered)
        earlier = RepeatedSignals()
        blocked: set[tuple[str, str]] = set()
        too_old = 0
        began_at = datetime.fromtimestamp(request.began_at_ms / 1000, UTC)
        for run in reversed(runs):
            submissions, old = self._submissions_of(host, run, earlier, recovered, began_at)
            too_old += old
            recovered.recorded += self._record(host, submissions, blocked)
            recovered.runs += 1
        if recovered.gone or too_old:
            self._tell(host, recovered.gone, too_old)
        elif runs:
            run_in_transaction(self.engine, partial(close_alert, host=host, dedupe_key=SIGNALS_LOST))
        if blocked:
            raise TransactionContended(f"the rows of {len(blocked)} entities are locked; all else is recorded")
        if recovered.recorded:
            logger.warning("recorded %s signals of %s that earlier runs left unread", recovered.recorded, host)
        return recovered

    def _runs_to_read(self, host: str, request: messages.Recovery, recovered: messages.Recovered) -> list[RunStart]:
        """Latest first: back to a run that got everything from its predecessor, and to the originals of reset runs."""
        walk = _Walk(host, request, self.histories)
        runs: list[RunStart] = []
        originals: dict[str, None] = {}
        run_id = walk.before(request.run_id, request.continued_run_id if not _is_reset(request) else "")
        while run_id and len(runs) < RUNS_MAX:
            activity.heartbeat()
            try:
                run = self.histories.start_of(host, run_id)
            except HistoryGone:
                recovered.gone.append(run_id)
                return runs
            runs.append(run)
            originals.pop(run_id, None)
            if run.is_reset:
                originals[run.original_run_id] = None
            elif run.continued_run_id and not run.given.unrecorded and not originals:
                return runs
            run_id = walk.before(run_id, "" if run.is_reset else run.continued_run_id)
        if run_id and len(runs) == RUNS_MAX:
            recovered.gone.append(run_id)  # it and those before it are not read
        recovered.gone += originals
        if not runs and self._has_worked_before(host, request):
            recovered.gone.append(ALL_EARLIER)
        return runs

    def _has_worked_before(self, host: str, request: messages.Recovery) -> bool:
        began = datetime.fromtimestamp(request.began_at_ms / 1000, UTC) - CLOCKS_APART
        return run_in_transaction(self.engine, lambda connection: wrote_before(connection, host, began))

    def _submissions_of(
        self, host: str, run: RunStart, earlier: RepeatedSignals, recovered: messages.Recovered, began_at: datetime
    ) -> tuple[list[Submission], int]:
        """All submissions to a run, in order; and the number of those too old to know whether they were recorded."""
        try:
            events = self.histories.events_of(host, run.run_id, activity.heartbeat)
        except HistoryGone:
            recovered.gone.append(run.run_id)
            return [], 0
        oldest = began_at - timedelta(days=self.changes_kept_days)
        submissions, too_old = list(run.given.submissions), 0
        got = [Signal(signal.request_id, signal.payload.data, signal.given_again) for signal in events.signals]
        repeated = earlier.add(run.original_run_id, got, is_reset=run.is_reset)
        for place, signal in enumerate(events.signals, 1):
            if repeated[place - 1]:
                continue
            if signal.at < oldest:
                too_old += 1
                continue
            key = signal_key(run.original_run_id, place, signal.payload.data)
            submissions.append(Submission(intake.read_change(RawValue(signal.payload)), key))
        return submissions, too_old

    def _record(self, host: str, submissions: Sequence[Submission], blocked: set[tuple[str, str]]) -> int:
        count = 0
        for batch in _batches(submissions):
            activity.heartbeat()
            keys = [submission.fallback_key for submission in batch]
            known = run_in_transaction(self.engine, partial(known_hashes, host=host, keys=keys))
            missing = [submission for submission in batch if submission.fallback_key not in known]
            answers = record_or_leave(self.engine, host, missing, blocked)
            count += sum(not answer.left and not answer.duplicate for answer in answers)
        return count

    def _tell(self, host: str, gone: Sequence[str], too_old: int) -> None:
        parts = [f"the histories of these runs are gone: {', '.join(gone[:5])}"] if gone else []
        if too_old:
            parts.append(f"{too_old} signals are older than {self.changes_kept_days} days")
        message = (
            f"Changes that were signalled to the writer may be lost: {' and '.join(parts)}. Send again those that are "
            "not found by their key; see docs/messages.md, what a signal promises."
        )

        def tell(connection: Connection) -> None:
            raise_alert(
                connection,
                host=host,
                kind=SIGNALS_LOST,
                severity="warning" if list(gone) == [ALL_EARLIER] else "critical",
                message=message,
                dedupe_key=SIGNALS_LOST,
            )

        run_in_transaction(self.engine, tell)


class _Walk:
    """Walks backwards from run to run; lists the runs only if a run does not say which one it continued."""

    def __init__(self, host: str, request: messages.Recovery, histories: Histories) -> None:
        self._host = host
        self._request = request
        self._histories = histories
        self._listed: list[str] | None = None

    def before(self, run_id: str, continued_run_id: str) -> str:
        if continued_run_id:
            return continued_run_id
        if self._listed is None:
            caller = self._request.run_id
            earlier = self._histories.runs_before(self._host, caller, activity.heartbeat)
            self._listed = [caller, *earlier]
        try:
            place = self._listed.index(run_id)
        except ValueError:
            return ""
        return self._listed[place + 1] if place + 1 < len(self._listed) else ""


def _is_reset(request: messages.Recovery) -> bool:
    return request.run_id != request.original_run_id


def _batches(submissions: Sequence[Submission]) -> Iterator[Sequence[Submission]]:
    for start in range(0, len(submissions), BATCH):
        yield submissions[start : start + BATCH]


class Signal(NamedTuple):
    """One that a run got. `request_id`: "" from older servers. `given_again`: by the reset that began the run."""

    request_id: str
    content: bytes
    given_again: bool


@dataclass(frozen=True, slots=True)
class _Run:
    """`digests`: of its signals' contents, in order. `given_again`: which of them stand where a reset gives signals
    again. `repeated`: which of them an earlier run had got.
    """

    original_run_id: str
    digests: list[bytes]
    given_again: list[bool]
    repeated: list[bool]


@dataclass(slots=True)
class RepeatedSignals:
    """Which signals a reset run got again: what earlier runs got, added in the order in which they began.

    A reset run begins with a copy of its base run's history, up to the event that it was reset to. Then Temporal gives
    it again what the base run had got after that event, and all signals of the runs that had followed, in their order.
    From server 1.32 on each signal has a request id in the history, which the repetition has, too. Older servers write
    none (tried: 1.29, 1.30, 1.31): there a repetition is known by where it stands in the history and by its content.
    """

    _request_ids: dict[str, None] = field(default_factory=dict)
    _runs: list[_Run] = field(default_factory=list)

    def add(self, original_run_id: str, signals: Sequence[Signal], *, is_reset: bool) -> list[bool]:
        """For each signal of a further run: whether it is recorded with an earlier run.

        A signal copied from the base run keeps its place and so its key; either answer is right.
        """
        run = _Run(
            original_run_id,
            [blake2b(signal.content, digest_size=16).digest() for signal in signals],
            [signal.given_again for signal in signals],
            [signal.request_id in self._request_ids for signal in signals],
        )
        if is_reset:
            self._mark_given_again(run)
        self._request_ids.update((signal.request_id, None) for signal in signals if signal.request_id)
        self._runs.append(run)
        return run.repeated

    def _mark_given_again(self, run: _Run) -> None:
        """By content: what the base run had got from others, and what those got that followed it."""
        number = self._base_of(run)
        if number is None:
            return
        base = self._runs[number]
        at = len(base.digests)
        run.repeated[:at] = [any(both) for both in zip(run.repeated, base.repeated, strict=False)]
        for later in self._runs[number + 1 :]:
            end = at + len(later.digests)
            follows = later.original_run_id != run.original_run_id
            if follows and all(run.given_again[at:end]) and run.digests[at:end] == later.digests:
                run.repeated[at:end] = [True] * len(later.digests)
                at = end

    def _base_of(self, run: _Run) -> int | None:
        """The run with the same original whose signals `run` has, all of them, first; the longest such."""
        bases = [
            number
            for number, earlier in enumerate(self._runs)
            if earlier.original_run_id == run.original_run_id and run.digests[: len(earlier.digests)] == earlier.digests
        ]
        return max(bases, key=lambda number: len(self._runs[number].digests), default=None)


@dataclass(slots=True)
class TemporalHistories:
    """Reads runs' histories from Temporal. `loop`: the client's event loop."""

    client: Client
    loop: asyncio.AbstractEventLoop

    def runs_before(self, host: str, run_id: str, heartbeat: Heartbeat) -> list[str]:
        listed = self._wait(self._list(host), heartbeat)
        if run_id not in listed:
            text = f"run {run_id} is not in Temporal's list of runs yet"
            raise ApplicationError(text, type="NotListed", next_retry_delay=LISTED_AGAIN)
        return listed[listed.index(run_id) + 1 :]

    def start_of(self, host: str, run_id: str) -> RunStart:
        page = self._wait(self._page(host, run_id, b"", size=1), _no_heartbeat)
        attributes = page.history.events[0].workflow_execution_started_event_attributes
        given = self._wait(self._input(list(attributes.input.payloads)), _no_heartbeat)
        original = attributes.original_execution_run_id or run_id
        return RunStart(run_id, original, attributes.continued_execution_run_id, given)

    def events_of(self, host: str, run_id: str, heartbeat: Heartbeat) -> RunEvents:
        seen = RunEvents()
        token, first = b"", True
        while first or token:
            first = False
            page = self._wait(self._page(host, run_id, token), heartbeat)
            self._wait(self._read(page.history.events, seen), heartbeat)
            token = page.next_page_token
            heartbeat()
        return seen

    def _wait(self, question: Coroutine[Any, Any, T], heartbeat: Heartbeat) -> T:
        answer = asyncio.run_coroutine_threadsafe(question, self.loop)
        while True:
            try:
                return answer.result(HEARTBEAT_SECONDS)
            except NotYet:
                if answer.done():
                    raise
                heartbeat()

    async def _list(self, host: str) -> list[str]:
        listed = self.client.list_workflows(f"WorkflowId = '{workflow_id(host)}'", limit=RUNS_LISTED_MAX)
        runs = [(run.start_time, run.run_id) async for run in listed]
        return [run_id for _, run_id in sorted(runs, reverse=True)]

    async def _page(self, host: str, run_id: str, token: bytes, size: int = 0) -> GetWorkflowExecutionHistoryResponse:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self.client.namespace,
            execution=WorkflowExecution(workflow_id=workflow_id(host), run_id=run_id),
            maximum_page_size=size,
            next_page_token=token,
        )
        try:
            return await self.client.workflow_service.get_workflow_execution_history(request, retry=True)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise HistoryGone(run_id) from error
            raise

    async def _input(self, payloads: Sequence[Payload]) -> messages.WriterInput:
        """A run's argument; an empty one if it can't be read (the run itself could not read it either)."""
        try:
            (given,) = await self.client.data_converter.decode(payloads, [messages.WriterInput])
        except KeyMissing:
            raise
        except Exception:  # noqa: BLE001 - a converter may raise anything for unknown bytes
            return messages.WriterInput()
        return given if isinstance(given, messages.WriterInput) else messages.WriterInput()

    async def _read(self, events: Sequence[HistoryEvent], seen: RunEvents) -> None:
        """A reset ends what it copies with a failed workflow task, and gives signals again before the next one."""
        for event in events:
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                await self._read_signal(event, seen)
            elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                cause = event.workflow_task_failed_event_attributes.cause
                seen.gives_again = cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
            elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED:
                seen.gives_again = False

    async def _read_signal(self, event: HistoryEvent, seen: RunEvents) -> None:
        attributes = event.workflow_execution_signaled_event_attributes
        if attributes.signal_name == SUBMIT_CHANGE:
            payloads = await self._decode(list(attributes.input.payloads[:1]))
            at = event.event_time.ToDatetime(UTC)
            payload = payloads[0] if payloads else Payload()
            seen.signals.append(SignalEvent(attributes.request_id, at, payload, given_again=seen.gives_again))

    async def _decode(self, payloads: list[Payload]) -> list[Payload]:
        codec = self.client.data_converter.payload_codec
        return payloads if codec is None else list(await codec.decode(payloads))


def _no_heartbeat() -> None:
    """No heartbeat: for one short call."""
