"""How the writer calls each activity: one table by the type of the activity's argument, and one function.

The argument is the machine's own action, or a request of the workflow (`messages.py`). No argument names the host: it
is in the workflow's id, which every activity sees.

Activities that talk to OldHost have one attempt: an ambiguous end is left to the recovery path, never retried blindly.
Those that record are idempotent and are retried until they succeed. Any may end without a result, also those that are
retried: a person can end any activity, with any result or as failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy.machine import actions, events
    from oldhost_sync.policy.plain_text import plain_markdown
    from oldhost_sync.policy.rules.operator_act import ActRecorded, OperatorAct
    from workflows import messages

ONCE = RetryPolicy(maximum_attempts=1)
UNTIL_IT_WORKS = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))
# Before conditions are recorded again, or unread signals sought. Retried until they work, they fail only by a person.
AGAIN_SECONDS = 1
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


def _send_failed(error: NoResult) -> events.SendFailed:
    limit = error.passed_limit
    return events.SendFailed(
        never_started=limit is TimeoutType.SCHEDULE_TO_START, silent=limit is TimeoutType.HEARTBEAT
    )


def _kinds(action: actions.RecordConditions) -> str:
    kinds = {each.kind: None for each in (*action.conditions, *action.events)}
    return ", ".join(list(kinds)[:5]) or "all is well"


def _read(action: actions.LoadOutstanding) -> str:
    if action.entity is not None:
        return plain_markdown(f"what waits of {action.entity.entity_type} {action.entity.entity_id}?")
    return "rebuild: what is outstanding?"


@dataclass(frozen=True, slots=True)
class Call:
    """One activity. `summary`: a text for Temporal's UI, from the argument. `result`: None: what it gives is not read.
    `limit`: of one attempt. `heartbeat`: None: it gives none. `without_result`: the event that reports a NoResult.

    `talks_to_oldhost`: when it is cancelled, it still finishes first; `of_session`: on the queue of the worker that has
    the session. The time limits of these grow for a slow worker (`FailureDetector`).
    """

    activity: str
    summary: Callable[[Any], str]
    result: Any = None
    limit: timedelta = DATABASE_LIMIT
    heartbeat: timedelta | None = None
    retry: RetryPolicy = field(default_factory=lambda: UNTIL_IT_WORKS)
    talks_to_oldhost: bool = False
    of_session: bool = False
    without_result: Callable[[NoResult], object] = lambda error: error


_of_session = partial(Call, heartbeat=HEARTBEAT_TIMEOUT, retry=ONCE, talks_to_oldhost=True, of_session=True)

CALLS: dict[type, Call] = {
    # ------------------------------------------------------------------------------------------------ the machine's
    actions.OpenSession: Call(
        "open_session",
        lambda _: "a session with OldHost",
        events.OpeningResult,
        OPENING_LIMIT,
        HEARTBEAT_TIMEOUT,
        ONCE,
        talks_to_oldhost=True,
        without_result=lambda error: events.OpeningFailed(error.words),
    ),
    actions.Send: _of_session(
        "send",
        lambda send: f"{len(send.change_ids)} operations",  # the dispatcher names them
        events.SendEnded,
        SENDING_LIMIT,
        without_result=_send_failed,
    ),
    actions.StopSends: _of_session(
        "stop_sends", lambda _: "the sends under way end", None, CLOSING_LIMIT, heartbeat=None
    ),
    actions.CloseSession: _of_session(
        "close_session", lambda close: f"session {close.epoch} ends", None, CLOSING_LIMIT
    ),
    actions.Probe: _of_session(
        "probe",
        lambda _: "is the nonce still the one we expect?",
        events.Probed,
        PROBING_LIMIT,
        without_result=lambda _: events.Probed(session_open=False),
    ),
    actions.LoadOutstanding: Call("load_outstanding", _read, messages.Outstanding, retry=ONCE),
    actions.Sweep: Call("sweep", lambda _: "sweep: what was missed?", messages.Outstanding, retry=ONCE),
    actions.RecordConditions: Call("record_conditions", _kinds),
    # --------------------------------------------------------------------------------------------- the workflow's own
    OperatorAct: Call("record_act", lambda act: f"{act.action} by {plain_markdown(act.operator)}", ActRecorded),
    messages.Submissions: Call(
        "record_submissions", lambda request: f"{len(request.items)} submitted", list[messages.Recorded]
    ),
    messages.Recovery: Call(
        "recover_submissions",
        lambda _: "signals that earlier runs left unread",
        messages.Recovered,
        RECOVERY_LIMIT,
        RECOVERY_HEARTBEAT,
    ),
    messages.NightlyResync: Call(
        "request_nightly_resync", lambda nightly: f"a resync of {nightly.host} is asked for", int
    ),
}
RESOLVE = replace(CALLS[OperatorAct], limit=RESOLVE_LIMIT, heartbeat=RECOVERY_HEARTBEAT)


def call_of(argument: object) -> Call:
    is_resolve = isinstance(argument, OperatorAct) and argument.action == "resolve"
    return RESOLVE if is_resolve else CALLS[type(argument)]


async def result_of(
    argument: object, *, queue: str | None = None, slack: int = 1, summary: str = "", within: timedelta | None = None
) -> Any:
    """Call the activity that takes this argument. Raises NoResult, after `within` even if a retry would follow.

    `queue`: of the session; `slack`: for a slow worker; `summary`: instead of the table's.
    """
    call = call_of(argument)
    ended = await _end_of(call, argument, queue, slack, summary, within)
    if call.result is None:
        return None
    # Decoded here, because for a result that can't be decoded the SDK fails the workflow task, again and again.
    try:
        return workflow.payload_converter().from_payload(ended.payload, call.result)
    except Exception as error:
        reason = type(error).__name__
        workflow.logger.warning("%s counts as failed: its result can't be read (%s)", call.activity, reason)
        raise NoResult(f"the result of {call.activity} can't be read") from error


async def _end_of(
    call: Call, argument: object, queue: str | None, slack: int, summary: str, within: timedelta | None
) -> RawValue:
    finishes = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
    tries = workflow.ActivityCancellationType.TRY_CANCEL
    try:
        ended: RawValue = await workflow.execute_activity(
            call.activity,
            argument,
            result_type=RawValue,
            task_queue=queue,
            schedule_to_start_timeout=SCHEDULE_TO_START * slack if call.of_session else None,
            start_to_close_timeout=call.limit,
            schedule_to_close_timeout=within,
            heartbeat_timeout=call.heartbeat * slack if call.heartbeat else None,
            retry_policy=call.retry,
            cancellation_type=finishes if call.talks_to_oldhost else tries,
            summary=summary or call.summary(argument),
        )
    except ActivityError as error:
        passed = error.cause.type if isinstance(error.cause, ActivityTimeoutError) else None
        raise NoResult(f"{call.activity} failed", passed) from error
    return ended
