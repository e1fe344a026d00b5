"""The activities as the writer calls them: each with its timeouts and its retry policy, in one place.

Activities that talk to OldHost have one attempt: an ambiguous end is left to the recovery path, never retried blindly
(trap 1). Their timeouts are multiplied by `slack` for a slow worker (`FailureDetector`). Activities that only
use the database are idempotent and are retried until they succeed.

Each may raise NoResult, also those that are retried: a person can end any activity, with any result or as failed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy.machine import actions, events
    from oldhost_sync.policy.plain_text import plain_markdown
    from workflows import messages

ONCE = RetryPolicy(maximum_attempts=1)
UNTIL_IT_WORKS = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))
# Before alerts, or the search for unread signals, begin anew. Retried until they work, they fail only by a person.
AGAIN_SECONDS = 1
# A cancelled activity that talks to OldHost still finishes first.
TO_THE_END = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
# A dead worker is noticed after this; heartbeats leave after 3 s, then every 3.5 s.
HEARTBEAT_TIMEOUT = timedelta(seconds=6)
# The worker that holds a session polls its own queue all the time: if it has not taken a task by then, it is gone. So a
# killed idle worker is noticed if no other one watched it; one that was only delayed loses its session: half a second.
SCHEDULE_TO_START = timedelta(seconds=2)
# Connecting may have to wait until OldHost notices that the last connection is gone.
OPENING_LIMIT = timedelta(seconds=90)
# Far above what a send can take: its own deadlines and heartbeats detect a session that hangs.
SENDING_LIMIT = timedelta(seconds=120)
PROBING_LIMIT = timedelta(seconds=60)
CLOSING_LIMIT = timedelta(seconds=20)
DATABASE_LIMIT = timedelta(seconds=30)
# Some thousand signals of 28 kB take half a minute; after this limit the next attempt resumes where the last one
# stopped.
RECOVERY_LIMIT = timedelta(minutes=10)
# A statement may take 8 s, and a page of history some seconds.
RECOVERY_HEARTBEAT = timedelta(seconds=30)
# Several statements, each of up to 15 minutes. It heartbeats all the time.
RESOLVE_LIMIT = timedelta(hours=1)

# A union: the data converter accepts it (it decides by `state`), but `result_type` is not typed for one.
_OPENING_REPORTED: Any = events.OpeningReported

T = TypeVar("T")


class NoResult(ApplicationError):  # noqa: N818 - says what happened
    """An activity ended without a result that can be read. `passed_limit`: which of its time limits it passed.
    `words`: the same for people.
    """

    def __init__(self, why: str, passed_limit: TimeoutType | None = None) -> None:
        super().__init__(why, type="NoResult")
        self.passed_limit = passed_limit

    @property
    def words(self) -> str:
        if self.passed_limit is None:
            return "the worker's log says why"
        if self.passed_limit is TimeoutType.HEARTBEAT:
            return "its worker gave no sign of life; it or MariaDB may hang"
        return "it took too long"


async def _end_of(name: str, argument: object, **options: Any) -> RawValue:
    """Run the activity to its end; what it gave is not decoded."""
    try:
        ended: RawValue = await workflow.execute_activity(name, argument, result_type=RawValue, **options)
    except ActivityError as error:
        passed = error.cause.type if isinstance(error.cause, ActivityTimeoutError) else None
        raise NoResult(f"{name} failed", passed) from error
    return ended


async def _result_of(name: str, argument: object, *, result_type: type[T], **options: Any) -> T:
    """Decoded here, because for a result that can't be decoded the SDK fails the workflow task, again and again."""
    ended = await _end_of(name, argument, **options)
    try:
        return workflow.payload_converter().from_payload(ended.payload, result_type)
    except Exception as error:
        workflow.logger.warning("%s counts as failed: its result can't be read (%s)", name, type(error).__name__)
        raise NoResult(f"the result of {name} can't be read") from error


async def open_session(host: str, action: actions.OpenSession, slack: int) -> events.OpeningReported:
    return await _result_of(
        "open_session",
        messages.OpenSession(host, list(action.in_doubt), list(action.newest)),
        result_type=_OPENING_REPORTED,
        start_to_close_timeout=OPENING_LIMIT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT * slack,
        retry_policy=ONCE,
        cancellation_type=TO_THE_END,
        summary=f"session for {host}",
    )


async def send(host: str, action: actions.Send, slack: int) -> events.SendEnded:
    return await _result_of(
        "send",
        messages.SendRequest(
            host,
            action.epoch,
            list(action.change_ids),
            action.sequence,
            list(action.accepted_at_ms),
            action.urgent,
        ),
        task_queue=action.task_queue,
        result_type=events.SendEnded,
        schedule_to_start_timeout=SCHEDULE_TO_START * slack,
        start_to_close_timeout=SENDING_LIMIT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT * slack,
        retry_policy=ONCE,
        cancellation_type=TO_THE_END,
        summary=action.label,
    )


async def stop_sends(host: str, action: actions.StopSends, slack: int) -> None:
    await _end_of(
        "send",
        messages.SendRequest(host, action.epoch, stops=True),
        task_queue=action.task_queue,
        schedule_to_start_timeout=SCHEDULE_TO_START * slack,
        start_to_close_timeout=CLOSING_LIMIT,
        retry_policy=ONCE,
        summary="the sends under way end",
    )


async def close_session(host: str, action: actions.CloseSession, slack: int) -> None:
    await _end_of(
        "close_session",
        messages.SessionRef(host, action.epoch),
        task_queue=action.task_queue,
        schedule_to_start_timeout=SCHEDULE_TO_START * slack,
        start_to_close_timeout=CLOSING_LIMIT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT * slack,
        retry_policy=ONCE,
        cancellation_type=TO_THE_END,
        summary=f"session {action.epoch} ends",
    )


async def probe(host: str, action: actions.Probe, slack: int) -> events.Probed:
    return await _result_of(
        "probe",
        messages.SessionRef(host, action.epoch),
        task_queue=action.task_queue,
        result_type=events.Probed,
        schedule_to_start_timeout=SCHEDULE_TO_START * slack,
        start_to_close_timeout=PROBING_LIMIT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT * slack,
        retry_policy=ONCE,
        cancellation_type=TO_THE_END,
        summary="is the nonce still the one we expect?",
    )


async def load_outstanding(page: messages.OutstandingPage, retry_policy: RetryPolicy) -> messages.Outstanding:
    return await _result_of(
        "load_outstanding",
        page,
        result_type=messages.Outstanding,
        start_to_close_timeout=DATABASE_LIMIT,
        retry_policy=retry_policy,
        summary=_what_is_read(page),
    )


def _what_is_read(page: messages.OutstandingPage) -> str:
    if page.entity is not None:
        return plain_markdown(f"what waits of {page.entity[0]} {page.entity[1]}?")
    return "sweep: what was missed?" if page.quiet_ms else "rebuild: what is outstanding?"


async def record_submissions(request: messages.Submissions, within: timedelta | None = None) -> list[messages.Recorded]:
    """One answer per item. `within`: raise NoResult after this time, even if a retry would follow; None: retry until it
    succeeds.
    """
    answers = await _result_of(
        "record_submissions",
        request,
        result_type=list[messages.Recorded],
        start_to_close_timeout=DATABASE_LIMIT,
        schedule_to_close_timeout=within,
        retry_policy=UNTIL_IT_WORKS,
        summary=f"{len(request.items)} submitted",
    )
    if len(answers) != len(request.items):
        raise NoResult(f"{len(answers)} answers for {len(request.items)} submissions")
    return answers


async def recover_submissions(request: messages.Recovery) -> messages.Recovered:
    return await _result_of(
        "recover_submissions",
        request,
        result_type=messages.Recovered,
        start_to_close_timeout=RECOVERY_LIMIT,
        heartbeat_timeout=RECOVERY_HEARTBEAT,
        retry_policy=UNTIL_IT_WORKS,
        summary="signals that earlier runs left unread",
    )


async def record_decision(decision: messages.OperatorAct) -> messages.ActRecorded:
    may_be_long = decision.action == "resolve"
    return await _result_of(
        "record_decision",
        decision,
        result_type=messages.ActRecorded,
        start_to_close_timeout=RESOLVE_LIMIT if may_be_long else DATABASE_LIMIT,
        heartbeat_timeout=RECOVERY_HEARTBEAT if may_be_long else None,
        retry_policy=UNTIL_IT_WORKS,
        summary=f"{decision.action} by {plain_markdown(decision.operator)}",
    )


async def raise_alerts(host: str, action: actions.RecordAlerts) -> None:
    kinds = {one.dedupe_key if one.close else one.kind: None for one in action.alerts}
    await _end_of(
        "raise_alerts",
        messages.Alerts(host, list(action.alerts)),
        start_to_close_timeout=DATABASE_LIMIT,
        retry_policy=UNTIL_IT_WORKS,
        summary=", ".join(list(kinds)[:5]),
    )


async def request_nightly_resync(nightly: messages.NightlyResync) -> int:
    return await _result_of(
        "request_nightly_resync",
        nightly,
        result_type=int,
        start_to_close_timeout=DATABASE_LIMIT,
        retry_policy=UNTIL_IT_WORKS,
        summary=f"a resync of {nightly.host} is asked for",
    )
