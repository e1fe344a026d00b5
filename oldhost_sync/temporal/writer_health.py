"""The health of a host's writer from Temporal's records: whether it runs, its tasks succeed, and a worker takes them.

A query can't show this: a closed run answers queries as if it were running, and a run whose workflow task fails answers
none. :func:`judge` is pure. No time of Temporal's is compared with this machine's clock (see `task_queue`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import (
    EventType,
    PendingActivityState,
    TaskQueueType,
    TimeoutType,
    WorkflowExecutionStatus,
    WorkflowTaskFailedCause,
)
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import WorkflowExecutionInfo, WorkflowExecutionPauseInfo
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryReverseRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from oldhost_sync.temporal.payload_encryption import KeyMissing
from oldhost_sync.temporal.task_queue import (
    QueueState,
    TaskSights,
    Untaken,
    diversion,
    due_task,
    instant_of,
    known_pollers,
    waiting_tasks,
)
from workflows.messages import TASK_QUEUE, WORKFLOW_TYPE, workflow_id

RPC_TIMEOUT = timedelta(seconds=5)
# Among so many last events are the failure of a workflow task that is being retried, and three tasks in a row that
# timed out after 10 s each, with a relay's signals of 30 s between them.
LAST_EVENTS = 60
# A killed worker leaves one task unfinished; more in a row are caused by the task itself.
UNFINISHED_TASKS = 2
ERROR_LENGTH_MAX = 300
# A worker that polls takes a task within milliseconds, an activity within the time of the one before it.
SECOND_POLL_SECONDS = 0.5

# Temporal may keep a task back after its clock was set back, or while its clock is behind what it has recorded; a
# restart of Temporal changes nothing then.
_CURE = "terminate the run (`temporal workflow terminate -w {}`): the relay starts another, and nothing is lost"
_START_ONE = "start one (`oldhost-sync worker`); if workers are at work, none of them frozen or with all threads busy, "
_TASK_ENDS = {
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
}


class WriterState(StrEnum):
    """`RUNNING` is the only one in which all changes can reach OldHost. `PAUSED_IN_TEMPORAL`: it, or an activity."""

    RUNNING = "RUNNING"
    MISSING = "MISSING"
    CLOSED = "CLOSED"
    PAUSED_IN_TEMPORAL = "PAUSED_IN_TEMPORAL"
    FAILING = "FAILING"
    NO_WORKER = "NO_WORKER"


@dataclass(frozen=True, slots=True)
class WriterHealth:
    """`error`: what is wrong; empty if nothing is. `since`: when it began, by Temporal's clock. `advice`: what to do,
    if it is not what this state usually needs.
    """

    state: WriterState
    error: str = ""
    run_id: str = ""
    since: datetime | None = None
    advice: str = ""

    @property
    def runs(self) -> bool:
        return self.state is WriterState.RUNNING

    @property
    def hinders_roles(self) -> bool:
        """Whether a role that serves this writer is not ready. Not for a run that a person paused: else an upgrade
        would wait until it is unpaused.
        """
        return self.state not in {WriterState.RUNNING, WriterState.MISSING, WriterState.PAUSED_IN_TEMPORAL}


def trouble(health: WriterHealth) -> str:
    """What is wrong, without the error's own text, which may hold anything; empty if nothing is wrong."""
    if health.state in {WriterState.RUNNING, WriterState.MISSING}:
        return ""
    since = f" since {health.since:%Y-%m-%dT%H:%M:%SZ}" if health.since else ""
    return f"{health.state}: run {health.run_id}{since}; `oldhost-sync status` says more"


async def writer_health(
    client: Client,
    host: str,
    *,
    queue: Callable[[], Awaitable[QueueState]] | None = None,
    sights: TaskSights | None = None,
) -> WriterHealth:
    """The health of the writer of `host`. Raises RPCError when Temporal does not answer.

    `queue`: the state of the writers' task queue. Callers that ask for many hosts ask once for all. `sights`: what a
    caller that watches remembers; one that looks once has asked the writer in vain before (see `due_task`).
    """
    described = await describe_writer(client, host)
    if described is None:
        return WriterHealth(WriterState.MISSING, "the writer was never started, or Temporal has forgotten it")
    events = await _last_events(client, described) if _asks_for_events(described) else ()
    known = await (queue() if queue else queue_state(client))
    tasks = waiting_tasks(described)
    if sights:
        untaken = sights.untaken(host, tasks, known.pollers)
    else:
        untaken = await _still_untaken(client, host, due_task(tasks))
    return judge(described, events, queue=known, untaken=untaken)


async def _still_untaken(client: Client, host: str, untaken: Untaken | None) -> Untaken | None:
    """The same after a moment: what is due at the first look may have been scheduled just before."""
    if untaken is None:
        return None
    await asyncio.sleep(SECOND_POLL_SECONDS)
    described = await describe_writer(client, host)
    return untaken if described is not None and untaken.task in waiting_tasks(described) else None


async def describe_writer(client: Client, host: str) -> DescribeWorkflowExecutionResponse | None:
    """Temporal's description of the writer's current or last run; None if there is none. Raises RPCError.

    The SDK's own `describe` raises ValueError for a status that it does not know, as that of a paused run.
    """
    try:
        return await client.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(
                namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id(host))
            ),
            timeout=RPC_TIMEOUT,
        )
    except RPCError as error:
        if is_no_workflow(error):
            return None
        raise


def is_no_workflow(error: RPCError) -> bool:
    """Whether there is no such workflow; Temporal answers a missing namespace with the same status."""
    return error.status is RPCStatusCode.NOT_FOUND and not is_no_namespace(error)


def is_no_namespace(error: RPCError) -> bool:
    return any(detail.Is(NamespaceNotFoundFailure.DESCRIPTOR) for detail in error.grpc_status.details)


def status_name(described: DescribeWorkflowExecutionResponse) -> str:
    """The run's status in one word, such as RUNNING."""
    status = described.workflow_execution_info.status
    return WorkflowExecutionStatus.Name(status).removeprefix("WORKFLOW_EXECUTION_STATUS_")


def is_running(described: DescribeWorkflowExecutionResponse) -> bool:
    """Not closed, and not paused by a person."""
    return described.workflow_execution_info.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING


async def queue_state(client: Client, within: timedelta = RPC_TIMEOUT) -> QueueState:
    """The workers that have asked for workflow tasks in the last five minutes (Temporal remembers no longer), and the
    version to which Temporal gives the tasks.

    Raises RPCError when Temporal does not answer.
    """
    answer = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=TASK_QUEUE),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        ),
        timeout=within,
    )
    return QueueState(known_pollers(answer.pollers), answer.versioning_info)


def judge(
    described: DescribeWorkflowExecutionResponse,
    last_events: Sequence[HistoryEvent],
    *,
    queue: QueueState,
    untaken: Untaken | None,
) -> WriterHealth:
    """The health that a description shows. `last_events`: newest first, needed for a closed run or a pending task."""
    info = described.workflow_execution_info
    run_id = info.execution.run_id
    is_paused = info.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED
    if not is_paused and not is_running(described):
        return WriterHealth(
            WriterState.CLOSED, _how_it_ended(described, last_events), run_id, instant_of(info.close_time)
        )
    if (info.type.name, info.task_queue) != (WORKFLOW_TYPE, TASK_QUEUE):
        return WriterHealth(WriterState.FAILING, _whose_it_is(info), run_id, instant_of(info.start_time))
    if is_paused:
        pause = described.workflow_extended_info.pause_info
        return WriterHealth(
            WriterState.PAUSED_IN_TEMPORAL, _who_paused_it(pause), run_id, instant_of(pause.paused_time)
        )
    paused = _paused_activity(described)
    if paused is not None:
        return WriterHealth(WriterState.PAUSED_IN_TEMPORAL, paused[1], run_id, paused[0])
    return _of_its_tasks(described, _failed_task(described, last_events), queue, untaken)


def _of_its_tasks(
    described: DescribeWorkflowExecutionResponse,
    failed: tuple[datetime | None, str] | None,
    queue: QueueState,
    untaken: Untaken | None,
) -> WriterHealth:
    """The health of an open run that nobody paused: whether workers take its tasks and finish them."""
    info = described.workflow_execution_info
    run_id = info.execution.run_id
    diverted = diversion(described, queue) if failed or untaken else None
    if diverted is not None:
        since = untaken.task.since if untaken else failed[0] if failed else None
        return WriterHealth(WriterState.NO_WORKER, _short(diverted.error), run_id, since, diverted.cure)
    if failed is not None:
        since, error = failed
        return WriterHealth(WriterState.FAILING, error, run_id, since)
    if untaken is not None:
        advice = ("" if untaken.is_withheld else _START_ONE) + _CURE.format(info.execution.workflow_id)
        return WriterHealth(WriterState.NO_WORKER, _who_does_not_take_it(untaken), run_id, untaken.task.since, advice)
    if not queue.pollers:
        return WriterHealth(WriterState.NO_WORKER, "no worker asks for its tasks", run_id)
    return WriterHealth(WriterState.RUNNING, run_id=run_id)


# --------------------------------------------------------------------------------------------------- what it is made of


def _asks_for_events(described: DescribeWorkflowExecutionResponse) -> bool:
    return not is_running(described) or described.HasField("pending_workflow_task")


async def _last_events(client: Client, described: DescribeWorkflowExecutionResponse) -> Sequence[HistoryEvent]:
    answer = await client.workflow_service.get_workflow_execution_history_reverse(
        GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace,
            execution=described.workflow_execution_info.execution,
            maximum_page_size=LAST_EVENTS,
        ),
        timeout=RPC_TIMEOUT,
    )
    for event in answer.history.events:
        await _decrypt(client, event.workflow_execution_failed_event_attributes.failure)
        await _decrypt(client, event.workflow_task_failed_event_attributes.failure)
    return answer.history.events


async def _decrypt(client: Client, failure: Failure) -> None:
    """Decrypt the failure's messages; without the key they stay encrypted."""
    codec = client.data_converter.payload_codec
    while codec is not None and failure.HasField("encoded_attributes"):
        with contextlib.suppress(KeyMissing, ValueError, KeyError):
            (attributes,) = await codec.decode([failure.encoded_attributes])
            failure.message = json.loads(attributes.data)["message"]
        failure = failure.cause


def _whose_it_is(info: WorkflowExecutionInfo) -> str:
    """Someone else began a run under the writer's ID: by hand, with a mistyped task queue, or from another program."""
    ours = f"{WORKFLOW_TYPE} on {TASK_QUEUE}"
    return _short(
        f"its ID is taken by a run that is not ours: {info.type.name} on task queue {info.task_queue}, not {ours}"
    )


def _who_paused_it(pause: WorkflowExecutionPauseInfo) -> str:
    return _with_reasons("a person paused its run in Temporal", pause.identity, pause.reason)


def _paused_activity(described: DescribeWorkflowExecutionResponse) -> tuple[datetime | None, str] | None:
    """Since when an activity has waited for the person who paused it; a send, which has one attempt, never does."""
    for activity in described.pending_activities:
        if activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED:
            pause, name = activity.pause_info, f"{activity.activity_type.name} (id {activity.activity_id})"
            what = f"a person paused its activity {name} in Temporal"
            return instant_of(pause.pause_time), _with_reasons(what, pause.manual.identity, pause.manual.reason)
    return None


def _how_it_ended(described: DescribeWorkflowExecutionResponse, last_events: Sequence[HistoryEvent]) -> str:
    word = status_name(described).lower().replace("_", " ")
    last = last_events[0] if last_events else HistoryEvent()
    terminated = last.workflow_execution_terminated_event_attributes
    failure = last.workflow_execution_failed_event_attributes.failure
    return _with_reasons(f"its run ended: {word}", terminated.identity, terminated.reason, _message(failure))


def _failed_task(
    described: DescribeWorkflowExecutionResponse, last_events: Sequence[HistoryEvent]
) -> tuple[datetime | None, str] | None:
    """Since when the workflow task has been failing, and the error.

    The server repeats a failed task as its next attempt, and the history holds only the end of the first. But a signal
    that arrives while the task fails makes a new task of it, whose attempt is 1 again: so the history's ends count too.
    """
    if not described.HasField("pending_workflow_task"):
        return None
    attempt = described.pending_workflow_task.attempt
    ends = [event for event in last_events if event.event_type in _TASK_ENDS and not _was_not_begun(event)]
    if attempt <= 1:
        ends = [event for event in ends if not _by_others(event)]
    in_vain = list(takewhile(lambda end: end.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, ends))
    if not in_vain:
        return None
    last, since = in_vain[0], instant_of(in_vain[-1].event_time)
    if last.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
        message = _message(last.workflow_task_failed_event_attributes.failure)
        return since, _short(f"its workflow task fails: {message or 'no reason given'}")
    count = len(in_vain) - 1 + max(1, attempt - 1)
    if count >= UNFINISHED_TASKS:
        return since, f"its workflow task is not finished in time ({count} in a row; a worker cut off from Temporal?)"
    return None


def _was_not_begun(event: HistoryEvent) -> bool:
    """Whether a workflow task ended because the worker that had the run in its cache did not take it."""
    untaken = TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START
    return event.workflow_task_timed_out_event_attributes.timeout_type == untaken


def _by_others(event: HistoryEvent) -> bool:
    """Whether a workflow task was ended by what happened beside it: a signal, or a person's reset."""
    return event.workflow_task_failed_event_attributes.cause in {
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
    }


def _who_does_not_take_it(untaken: Untaken) -> str:
    if untaken.is_withheld:
        return "workers poll, but Temporal does not hand out its workflow task"
    activity = untaken.task.activity
    return f"no worker takes its activity {activity}" if activity else "no worker takes its workflow task"


def _message(failure: Failure) -> str:
    """The first line of a failure and of each cause; these hold no stack trace and no values."""
    parts = []
    while failure.message:
        parts.append(failure.message.splitlines()[0])
        failure = failure.cause
    return ": ".join(parts)


def _with_reasons(text: str, *reasons: str) -> str:
    """`text`, and in brackets those reasons that are known."""
    known = ": ".join(filter(None, reasons))
    return _short(f"{text} ({known})" if known else text)


def _short(text: str) -> str:
    return text if len(text) <= ERROR_LENGTH_MAX else text[: ERROR_LENGTH_MAX - 1] + "…"
