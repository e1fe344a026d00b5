"""Recovers signals that earlier runs of the writer left unread: acknowledged by Temporal, but not recorded.

A run that ends by continue-as-new passes everything on. A run that ends otherwise (terminated, failed, ended by the
server because its history is too large, reset) leaves signals in its history. The next run has the histories read here,
back to the last run that got everything from its predecessor. Each signal gets the key that its own run would have
given it, so that no change is recorded twice. If a history is gone, an alert is raised.

A reset run begins with a copy of another run's history, and gets the signals of all following runs again
(`repeated_signals`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from sqlalchemy.engine import Connection, Engine
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from activities.database_records import record_or_leave
from activities.repeated_signals import RepeatedSignals, Signal
from oldhost_sync.policy.limits import RETENTION_DAYS
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import TransactionContended
from oldhost_sync.store.intake.submitted_keys import known_hashes, wrote_before
from oldhost_sync.store.transactions import run_in_transaction
from workflows import intake, messages
from workflows.messages import Submission
from workflows.submission_keys import signal_key

logger = logging.getLogger(__name__)

# If this many runs in a row did not get everything from their predecessors, something keeps ending them.
RUNS_MAX = 200
SIGNALS_LOST = "signals-lost"
ALL_EARLIER = "all earlier ones"
# Temporal's and the database's clocks differ by less than this; no history is deleted this early.
CLOCKS_APART = timedelta(minutes=10)
BATCH = 50

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

    def runs_before(self, host: str, run_id: str, beat: Heartbeat) -> list[str]:
        """Ids of the runs that began before this one, the latest first."""

    def start_of(self, host: str, run_id: str) -> RunStart: ...
    def events_of(self, host: str, run_id: str, beat: Heartbeat) -> RunEvents: ...


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
        recovered = messages.Recovered()
        runs = self._runs_to_read(request, recovered)
        earlier = RepeatedSignals()
        blocked: set[tuple[str, str]] = set()
        too_old = 0
        began_at = datetime.fromtimestamp(request.began_at_ms / 1000, UTC)
        for run in reversed(runs):
            submissions, old = self._submissions_of(request.host, run, earlier, recovered, began_at)
            too_old += old
            recovered.recorded += self._record(request.host, submissions, blocked)
            recovered.runs += 1
        if recovered.gone or too_old:
            self._tell(request.host, recovered.gone, too_old)
        elif runs:
            run_in_transaction(self.engine, partial(close_alert, host=request.host, dedupe_key=SIGNALS_LOST))
        if blocked:
            raise TransactionContended(f"the rows of {len(blocked)} entities are locked; all else is recorded")
        if recovered.recorded:
            logger.warning("recorded %s signals of %s that earlier runs left unread", recovered.recorded, request.host)
        return recovered

    def _runs_to_read(self, request: messages.Recovery, recovered: messages.Recovered) -> list[RunStart]:
        """Latest first: back to a run that got everything from its predecessor, and to the originals of reset runs."""
        walk = _Walk(request, self.histories)
        found: list[RunStart] = []
        originals: dict[str, None] = {}
        run_id = walk.before(request.run_id, request.continued_run_id if not _is_reset(request) else "")
        while run_id and len(found) < RUNS_MAX:
            activity.heartbeat()
            try:
                run = self.histories.start_of(request.host, run_id)
            except HistoryGone:
                recovered.gone.append(run_id)
                return found
            found.append(run)
            originals.pop(run_id, None)
            if run.is_reset:
                originals[run.original_run_id] = None
            elif run.continued_run_id and not run.given.unrecorded and not originals:
                return found
            run_id = walk.before(run_id, "" if run.is_reset else run.continued_run_id)
        if run_id and len(found) == RUNS_MAX:
            recovered.gone.append(run_id)  # it and those before it are not read
        recovered.gone += originals
        if not found and self._has_worked_before(request):
            recovered.gone.append(ALL_EARLIER)
        return found

    def _has_worked_before(self, request: messages.Recovery) -> bool:
        began = datetime.fromtimestamp(request.began_at_ms / 1000, UTC) - CLOCKS_APART
        return run_in_transaction(self.engine, lambda connection: wrote_before(connection, request.host, began))

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
        got = [Signal(one.request_id, one.payload.data, one.given_again) for one in events.signals]
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

    def __init__(self, request: messages.Recovery, histories: Histories) -> None:
        self._request = request
        self._histories = histories
        self._listed: list[str] | None = None

    def before(self, run_id: str, continued_run_id: str) -> str:
        if continued_run_id:
            return continued_run_id
        if self._listed is None:
            asked = self._request
            earlier = self._histories.runs_before(asked.host, asked.run_id, activity.heartbeat)
            self._listed = [asked.run_id, *earlier]
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
