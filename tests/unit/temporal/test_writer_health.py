"""What a description of the writer's run says about it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.common.v1 import WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import (
    EventType,
    PendingActivityState,
    TimeoutType,
    WorkflowExecutionStatus,
    WorkflowTaskFailedCause,
)
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import (
    HistoryEvent,
    WorkflowExecutionTerminatedEventAttributes,
    WorkflowTaskFailedEventAttributes,
)
from temporalio.api.workflow.v1 import PendingActivityInfo, PendingWorkflowTaskInfo, WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from oldhost_sync.temporal.task_queue import QueueState, Untaken, waiting_tasks
from oldhost_sync.temporal.writer_health import WriterHealth, WriterState, judge
from workflows.messages import TASK_QUEUE, WORKFLOW_TYPE, workflow_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLLED = QueueState(frozenset({("worker", 1)}))


def described(
    *,
    status: WorkflowExecutionStatus.ValueType = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING,
    task: PendingWorkflowTaskInfo | None = None,
    activity: PendingActivityInfo | None = None,
    workflow_type: str = WORKFLOW_TYPE,
    task_queue: str = TASK_QUEUE,
) -> DescribeWorkflowExecutionResponse:
    return DescribeWorkflowExecutionResponse(
        workflow_execution_info=WorkflowExecutionInfo(
            status=status,
            execution=WorkflowExecution(workflow_id=workflow_id("h"), run_id="run"),
            type=WorkflowType(name=workflow_type),
            task_queue=task_queue,
        ),
        pending_workflow_task=task,
        pending_activities=[activity] if activity else [],
    )


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def task(scheduled: float, *, attempt: int = 1, started: bool = False) -> PendingWorkflowTaskInfo:
    info = PendingWorkflowTaskInfo(attempt=attempt)
    info.scheduled_time.FromDatetime(ago(scheduled))
    if started:
        info.started_time.FromDatetime(ago(scheduled))
    return info


def failed(message: str, cause: str = "") -> HistoryEvent:
    failure = Failure(message=message, cause=Failure(message=cause) if cause else None)
    return HistoryEvent(
        event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
        workflow_task_failed_event_attributes=WorkflowTaskFailedEventAttributes(failure=failure),
    )


def completed() -> HistoryEvent:
    return HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)


def judged(described: DescribeWorkflowExecutionResponse, *events: HistoryEvent, polled: bool = True) -> WriterHealth:
    return judge(described, events, queue=POLLED if polled else QueueState(), untaken=None)


def test_a_run_whose_tasks_are_taken_runs() -> None:
    assert judged(described(task=task(3))).runs
    assert judged(described(task=task(60, started=True))).runs


@pytest.mark.parametrize(
    ("workflow_type", "task_queue"), [("Other", TASK_QUEUE), (WORKFLOW_TYPE, "oldhost_sync")], ids=["type", "queue"]
)
def test_a_run_of_somebody_elses_under_the_writers_id_is_told_of(workflow_type: str, task_queue: str) -> None:
    health = judged(described(workflow_type=workflow_type, task_queue=task_queue))
    assert health.state is WriterState.FAILING
    assert f"{workflow_type} on task queue {task_queue}, not SyncWriterWorkflow on oldhost-sync" in health.error


def test_a_run_of_somebody_elses_that_has_ended_is_in_nobodys_way() -> None:
    ended = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED
    assert judged(described(status=ended, workflow_type="Other")).state is WriterState.CLOSED


def test_a_paused_run_says_who_paused_it_since_when_and_why() -> None:
    paused = described(status=WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED)
    pause = paused.workflow_extended_info.pause_info
    pause.identity, pause.reason = "ana@desk", "a look"
    pause.paused_time.FromDatetime(ago(60))
    health = judged(paused)
    assert (health.state, health.since) == (WriterState.PAUSED_IN_TEMPORAL, ago(60))
    assert health.error == "a person paused its run in Temporal (ana@desk: a look)"
    assert not health.hinders_roles


def test_an_activity_that_waits_for_the_person_who_paused_it_is_told_of() -> None:
    activity = PendingActivityInfo(activity_id="6", state=PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED)
    activity.activity_type.name = "record_submissions"
    activity.pause_info.pause_time.FromDatetime(ago(60))
    activity.pause_info.manual.identity, activity.pause_info.manual.reason = "ana@desk", "a look"
    health = judged(described(activity=activity))
    assert (health.state, health.since) == (WriterState.PAUSED_IN_TEMPORAL, ago(60))
    assert health.error == "a person paused its activity record_submissions (id 6) in Temporal (ana@desk: a look)"


def test_a_closed_run_says_how_it_ended_and_by_whom() -> None:
    terminated = HistoryEvent(
        workflow_execution_terminated_event_attributes=WorkflowExecutionTerminatedEventAttributes(
            reason="by mistake", identity="somebody"
        )
    )
    status = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED
    health = judged(described(status=status), terminated)
    assert health.state is WriterState.CLOSED
    assert health.error == "its run ended: terminated (somebody: by mistake)"


def test_a_failing_task_is_named_with_its_error_and_cause_without_stack_or_later_lines() -> None:
    health = judged(described(task=task(1, attempt=2)), failed("Failed decoding arguments\nline two", "missing host"))
    assert health.state is WriterState.FAILING
    assert health.error == "its workflow task fails: Failed decoding arguments: missing host"


def test_a_task_that_was_tried_again_with_success_does_not_fail() -> None:
    assert judged(described(task=task(1, attempt=2)), completed(), failed("long ago")).runs


def test_tasks_that_are_never_finished_in_time_are_a_failure_and_one_of_a_killed_worker_is_not() -> None:
    timed_out = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT)
    assert judged(described(task=task(1, attempt=2)), timed_out).runs
    assert judged(described(task=task(1, attempt=3)), timed_out).state is WriterState.FAILING


def test_a_task_that_fails_again_as_a_new_one_because_a_signal_came_meanwhile_fails() -> None:
    health = judged(described(task=task(0, started=True)), failed("a bad deploy"), failed("a bad deploy"), completed())
    assert (health.state, health.error) == (WriterState.FAILING, "its workflow task fails: a bad deploy")
    timed_out = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT)
    assert judged(described(task=task(0)), timed_out, completed()).runs
    assert judged(described(task=task(0)), timed_out, timed_out).state is WriterState.FAILING


@pytest.mark.parametrize("by", ["UNHANDLED_COMMAND", "RESET_WORKFLOW"])
def test_a_task_that_others_ended_does_not_fail(by: str) -> None:
    ended = failed("by others")
    ended.workflow_task_failed_event_attributes.cause = WorkflowTaskFailedCause.Value(
        f"WORKFLOW_TASK_FAILED_CAUSE_{by}"
    )
    assert judged(described(task=task(0)), ended, completed()).runs


def test_a_task_that_a_killed_worker_had_in_its_cache_and_did_not_take_is_no_attempt() -> None:
    timed_out = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT)
    untaken = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT)
    untaken.workflow_task_timed_out_event_attributes.timeout_type = TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START
    assert judged(described(task=task(0)), timed_out, untaken, completed()).runs


def test_a_failure_before_the_last_task_is_over() -> None:
    assert judged(described(), failed("long ago")).runs


def untaken_by_anybody(*, is_withheld: bool = False) -> WriterHealth:
    run = described(task=task(20))
    (waiting,) = waiting_tasks(run)
    return judge(run, (), queue=POLLED, untaken=Untaken(waiting, is_withheld))


def test_a_task_that_nobody_takes_means_no_worker() -> None:
    health = untaken_by_anybody()
    assert (health.state, health.since) == (WriterState.NO_WORKER, ago(20))
    assert health.error == "no worker takes its workflow task"
    assert health.advice.startswith("start one (`oldhost-sync worker`); if workers are at work")


def test_a_task_that_temporal_does_not_hand_out_to_polling_workers_needs_another_run() -> None:
    health = untaken_by_anybody(is_withheld=True)
    assert health.state is WriterState.NO_WORKER
    assert health.error == "workers poll, but Temporal does not hand out its workflow task"
    assert health.advice.startswith("terminate the run (`temporal workflow terminate -w sync-writer:h`)")


def test_a_queue_that_no_worker_polls_means_no_worker() -> None:
    assert judged(described(), polled=False).state is WriterState.NO_WORKER


def test_an_error_is_cut_to_a_line() -> None:
    assert len(judged(described(task=task(1, attempt=2)), failed("x" * 5000)).error) == 300
