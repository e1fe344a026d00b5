"""Which tasks of a run nobody takes, whatever Temporal's clock says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.common.v1 import ActivityType, WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo, PendingWorkflowTaskInfo, WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from oldhost_sync.temporal.task_queue import Pollers, TaskSights, Untaken, due_task, waiting_tasks

HERE = datetime(2026, 1, 1, tzinfo=UTC)
ONE_POLL: Pollers = frozenset({("worker", 1)})
NEXT_POLL: Pollers = frozenset({("worker", 2)})


def described(
    *, task: PendingWorkflowTaskInfo | None = None, activity: PendingActivityInfo | None = None
) -> DescribeWorkflowExecutionResponse:
    return DescribeWorkflowExecutionResponse(
        workflow_execution_info=WorkflowExecutionInfo(execution=WorkflowExecution(run_id="run")),
        pending_workflow_task=task,
        pending_activities=[activity] if activity else [],
    )


def workflow_task(ahead_s: float = 0.0, *, attempt: int = 1, started: bool = False) -> PendingWorkflowTaskInfo:
    info = PendingWorkflowTaskInfo(attempt=attempt)
    info.scheduled_time.FromDatetime(HERE + timedelta(seconds=ahead_s))
    if started:
        info.started_time.FromDatetime(HERE + timedelta(seconds=ahead_s))
    return info


def retried_activity(pause_s: float, *, due: bool, attempt: int = 2) -> PendingActivityInfo:
    activity = PendingActivityInfo(
        activity_id="7",
        activity_type=ActivityType(name="open_session"),
        state=PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED,
        attempt=attempt,
    )
    activity.last_attempt_complete_time.FromDatetime(HERE)
    activity.scheduled_time.FromDatetime(HERE + timedelta(seconds=pause_s))
    if not due:
        activity.next_attempt_schedule_time.CopyFrom(activity.scheduled_time)
    return activity


class Watcher:
    """Looks at a run at times of its own clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sights = TaskSights(lambda: self.now)

    def sees(
        self, run: DescribeWorkflowExecutionResponse, at: float, pollers: Pollers = ONE_POLL, host: str = "h"
    ) -> Untaken | None:
        self.now = at
        return self.sights.untaken(host, waiting_tasks(run), pollers)


@pytest.mark.parametrize("ahead_s", [-7200, 0, 7200])
def test_a_task_that_waits_at_looks_over_some_seconds_is_untaken_whatever_temporals_clock_says(ahead_s: float) -> None:
    watcher, run = Watcher(), described(task=workflow_task(ahead_s))
    assert [watcher.sees(run, at) for at in (0, 3, 6, 8)] == [None] * 4
    untaken = watcher.sees(run, 9)
    assert untaken is not None
    assert not untaken.is_withheld


def test_a_new_task_or_attempt_waits_anew() -> None:
    watcher = Watcher()
    assert watcher.sees(described(task=workflow_task(0)), 0) is None
    assert watcher.sees(described(task=workflow_task(1)), 9) is None
    assert watcher.sees(described(task=workflow_task(1, attempt=2)), 18) is None


def test_a_task_that_a_worker_has_does_not_wait() -> None:
    assert waiting_tasks(described(task=workflow_task(started=True))) == []


def test_only_tasks_of_the_last_look_are_remembered() -> None:
    watcher = Watcher()
    for number in range(100):
        watcher.sees(described(task=workflow_task(number)), number)
    assert sum(map(len, watcher.sights._seen.values())) == 1
    watcher.sees(described(), 100)
    assert watcher.sights._seen == {}


def test_an_activity_between_two_attempts_is_not_untaken_however_long_temporal_pauses() -> None:
    watcher = Watcher()
    assert [watcher.sees(described(activity=retried_activity(30, due=False)), at) for at in (0, 15, 29)] == [None] * 3
    assert watcher.sees(described(activity=retried_activity(30, due=True)), 31) is None
    untaken = watcher.sees(described(activity=retried_activity(30, due=True)), 51)
    assert untaken is not None
    assert untaken.task.activity == "open_session"


def test_one_who_looks_once_takes_what_is_due_for_untaken_and_not_what_is_between_two_attempts() -> None:
    assert due_task(waiting_tasks(described(task=workflow_task()))) is not None
    assert due_task(waiting_tasks(described(activity=retried_activity(30, due=True)))) is not None
    assert due_task(waiting_tasks(described(activity=retried_activity(30, due=False)))) is None


def test_a_task_that_waits_for_half_a_minute_while_workers_poll_is_withheld() -> None:
    watcher, run = Watcher(), described(task=workflow_task())
    for at in (0, 9):
        watcher.sees(run, at)
    early, late = watcher.sees(run, 30, NEXT_POLL), watcher.sees(run, 31, NEXT_POLL)
    assert early is not None
    assert not early.is_withheld
    assert late is not None
    assert late.is_withheld


def test_a_worker_that_temporal_only_remembers_does_not_poll() -> None:
    watcher, run = Watcher(), described(task=workflow_task())
    seen = [watcher.sees(run, at) for at in (0, 9, 40, 200)]
    assert seen[-1] == Untaken(waiting_tasks(run)[0], is_withheld=False)


def test_an_activity_is_never_called_withheld_since_it_may_wait_for_a_thread() -> None:
    watcher, run = Watcher(), described(activity=retried_activity(0, due=True))
    for at in (0, 21):
        watcher.sees(run, at)
    untaken = watcher.sees(run, 60, NEXT_POLL)
    assert untaken is not None
    assert not untaken.is_withheld
