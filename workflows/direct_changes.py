"""The updates that applications send to the writer itself: record a change now, and wait for its fate.

`submit` answers when the change is recorded; `apply_now` answers when the change has its fate, or when that will not be
soon.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.fields.change import read_change
    from oldhost_sync.policy.changes import ChangeRef, ChangeResult, Outcome
    from oldhost_sync.policy.machine.machine import Machine
    from oldhost_sync.policy.machine.outcomes import OutcomeWaiter
    from oldhost_sync.policy.machine.session import BreakerState
    from workflows import calls, intake, messages
    from workflows.clock import now_ms
    from workflows.intake import update_key
    from workflows.messages import Submission, from_wire
    from workflows.reception import Reception, record_submissions

# An open handler delays a new run, and Temporal takes only ten open updates, operators' included. So `apply_now` waits
# this long at most, recording included.
APPLY_NOW_MS = 25_000
RECORDING_LIMIT = timedelta(seconds=10)
# Updates that wait for a change's fate, up to 25 s each; further callers are told to ask by the idempotency key.
FATES_MAX = 4
# Those and the ones that wait for the database (10 s at most while it is away). Three places are for operators
# (`operator_acts.PENDING_MAX`); the tenth stays free, so that Temporal itself never refuses an update.
UPDATES_MAX = 6


def check_change(change: dict[str, Any]) -> None:
    """Complete, and of a size that fits into an activity's input."""
    read_change(change)
    if len(json.dumps(change)) > intake.CHANGE_BYTES_MAX:
        raise ValueError(f"the change is larger than {intake.CHANGE_BYTES_MAX} bytes")


def check_urgent_change(change: dict[str, Any]) -> None:
    """For `apply_now`: a valid change without `not_before`."""
    check_change(change)
    if change.get("not_before") is not None:
        raise ValueError("apply_now takes no not_before: leave it out, or submit the change")


class DirectChanges:
    """`wake` wakes the writer's loop; `leaving` says whether a new run is about to begin."""

    def __init__(
        self, machine: Machine, reception: Reception, wake: Callable[[], None], leaving: Callable[[], bool]
    ) -> None:
        self._machine = machine
        self._reception = reception
        self._wake = wake
        self._leaving = leaving
        self._waiting = WaitingUpdates()

    def check_room(self) -> None:
        """Raises ValueError when too many updates wait already."""
        self._waiting.check_room()

    async def submit(self, change: dict[str, Any]) -> messages.SubmitAnswer:
        """Record a change of any class; an ApplicationError says why not."""
        with self._waiting.for_the_database():
            recorded = await self._record(change, "submit")
        self._reception.hand_over(recorded)
        self._wake()
        return messages.SubmitAnswer(recorded.idempotency_key, recorded.change_id, recorded.outcome)

    async def apply_now(self, change: dict[str, Any]) -> messages.ApplyNowAnswer:
        """Record an EMERGENCY change and wait for its fate, if there is room to wait and sending is possible."""
        until_ms = now_ms() + APPLY_NOW_MS
        with self._waiting.for_the_database():
            recorded = await self._record(change, "apply_now", only_class="EMERGENCY")
        answer = messages.ApplyNowAnswer(recorded.idempotency_key, recorded.change_id, messages.WAITING, recorded.nonce)
        if recorded.ref is None or recorded.processed:
            answer.status = recorded.outcome
            return answer
        if not self._waiting.may_wait_for_fate:
            self._reception.hand_over(recorded)
            self._wake()
            answer.message = "accepted, not yet applied; others wait already: ask for its fate by the idempotency key"
            return answer
        with self._waiting.for_a_fate():
            fate = await self._await_fate(from_wire(recorded.ref), until_ms, by_relay=recorded.by_relay)
        if fate is None:
            answer.message = f"accepted, not yet applied{self._why_not_now()}: ask for its fate by the idempotency key"
            return answer
        answer.status, answer.nonce, answer.message = fate.outcome, fate.nonce, fate.error or ""
        answer.unconfirmed = fate.unproven and fate.outcome == Outcome.APPLIED
        return answer

    # ------------------------------------------------------------------------------------------------------- recording

    async def _record(self, change: dict[str, Any], source: str, only_class: str = "") -> messages.Recorded:
        """Record the change at once, by a separate activity."""
        update = workflow.current_update_info()
        key = update_key(update.id, change) if update else str(workflow.uuid4())
        submission = Submission(change, key, source=source, only_class=only_class)
        recording = asyncio.create_task(self._try_to_record(submission))
        await workflow.wait_condition(lambda: recording.done() or self._leaving())
        self._wake()
        recorded = recording.result() if recording.done() else None
        if recorded is None:
            limit = f"within {RECORDING_LIMIT.seconds} s: the database does not answer"
            raise _refused(
                f"not recorded {limit if recording.done() else 'before the end of the run: the database is slow'}. "
                f"It may still be recorded: repeat it with idempotency_key {change.get('idempotency_key') or key!r}"
            )
        if recorded.refused:
            raise _refused(recorded.refused)
        return recorded

    async def _try_to_record(self, submission: Submission) -> messages.Recorded | None:
        try:
            return (await record_submissions(messages.Submissions([submission]), within=RECORDING_LIMIT))[0]
        except calls.NoResult:
            return None

    # --------------------------------------------------------------------------------------------------------- waiting

    async def _await_fate(self, ref: ChangeRef, until_ms: int, *, by_relay: bool) -> ChangeResult | None:
        machine = self._machine
        waiter = machine.outcomes.watched.setdefault(ref.change_id, OutcomeWaiter())
        waiter.watchers += 1
        if not by_relay:
            machine.enqueue([ref], now_ms())
        self._wake()
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: waiter.fate is not None or machine.draining or bool(self._why_not_now()),
                timeout=timedelta(milliseconds=max(until_ms - now_ms(), 1)),
                timeout_summary="apply_now answers by then",
            )
        waiter.watchers -= 1
        if not waiter.watchers:
            del machine.outcomes.watched[ref.change_id]
        return waiter.fate

    def _why_not_now(self) -> str:
        if self._machine.paused:
            return " (the writer is paused)"
        if self._machine.breaker.state in (BreakerState.OPEN, BreakerState.HALTED):
            return f" ({self._machine.breaker.reason})"
        return ""


class WaitingUpdates:
    """How many updates of applications wait. Temporal allows ten in flight per run, operators' included."""

    def __init__(self) -> None:
        self._at_database = 0
        self._fates = 0

    def check_room(self) -> None:
        """Raises ValueError when one more would take a place reserved for operators."""
        if self._at_database + self._fates >= UPDATES_MAX:
            raise ValueError(
                f"{UPDATES_MAX} updates wait already: try again in a moment, with the same idempotency_key"
            )

    @property
    def may_wait_for_fate(self) -> bool:
        return self._fates < FATES_MAX

    @contextmanager
    def for_the_database(self) -> Iterator[None]:
        self._at_database += 1
        try:
            yield
        finally:
            self._at_database -= 1

    @contextmanager
    def for_a_fate(self) -> Iterator[None]:
        self._fates += 1
        try:
            yield
        finally:
            self._fates -= 1


def _refused(why: str) -> ApplicationError:
    return ApplicationError(why, type="Refused", non_retryable=True)
