"""The writers' task queue by Temporal's records: what waits and nobody takes, who polls, whose version gets it.

Temporal's clock and ours may differ by hours. So who watches remembers when it first saw each attempt of a task, by its
own monotonic clock, and whether workers have polled since. Whether an attempt is due is for Temporal's own clock.

Our workers belong to no worker deployment. Once a person makes a version of one current for the queue, or pins the
writer's run to one, Temporal hands out the tasks to workers of that version only, and ours poll in vain.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueueVersioningInfo
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

# A polling worker takes a task within milliseconds; the task of a killed worker returns to the shared queue within
# seconds.
UNTAKEN_TASK_SECONDS = 8.0
# Activities also wait for a free thread.
UNTAKEN_ACTIVITY_SECONDS = 20.0
# Longer than it takes a killed worker's task to return to the shared queue, and a restarted Temporal to hand it out.
WITHHELD_SECONDS = 30.0

# Each poller of a task queue, and its last poll by Temporal's clock, in nanoseconds. Temporal remembers a poller for
# five minutes; an idle worker polls anew once a minute.
Pollers = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """One attempt of an activity, or of the workflow task (then `activity` is empty).

    `since`: from when a worker can take it, by Temporal's clock. `pause_s`: how long Temporal held it back before.
    """

    run_id: str
    attempt: int
    since: datetime | None
    activity: str = ""
    activity_id: str = ""
    pause_s: float = 0.0
    is_due: bool = field(default=True, compare=False)

    @property
    def seconds_max(self) -> float:
        """How long it may be seen to wait while workers take what is due."""
        return self.pause_s + UNTAKEN_ACTIVITY_SECONDS if self.activity else UNTAKEN_TASK_SECONDS


@dataclass(frozen=True, slots=True)
class Untaken:
    """A task that nobody takes. `is_withheld`: workers poll for it, but Temporal does not hand it out."""

    task: WaitingTask
    is_withheld: bool = False


@dataclass(slots=True)
class _Sight:
    first: float
    # Those who had polled when it was found untaken.
    pollers: Pollers | None = None


@dataclass(eq=False)
class TaskSights:
    """When this process first saw each task that waits; of each host it keeps the tasks of the last look."""

    monotonic: Callable[[], float] = time.monotonic
    _seen: dict[str, Mapping[WaitingTask, _Sight]] = field(default_factory=dict)

    def untaken(self, host: str, tasks: Iterable[WaitingTask], pollers: Pollers) -> Untaken | None:
        """The first of `tasks`, which are all that wait for the host's writer now, that has waited too long."""
        now, before = self.monotonic(), self._seen.pop(host, {})
        seen = {task: before.get(task, _Sight(now)) for task in tasks}
        if seen:
            self._seen[host] = seen
        for task, sight in seen.items():
            waited = now - sight.first
            if waited > task.seconds_max:
                sight.pollers = pollers if sight.pollers is None else sight.pollers
                polled_since = bool(pollers - sight.pollers)
                # The pollers are the workflow tasks'; activities may wait for a thread meanwhile.
                return Untaken(task, is_withheld=not task.activity and waited > WITHHELD_SECONDS and polled_since)
        return None


def due_task(tasks: Iterable[WaitingTask]) -> Untaken | None:
    """For one who does not watch: what is due now. Whether it stays so, a second look tells."""
    return next((Untaken(task) for task in tasks if task.is_due), None)


def waiting_tasks(described: DescribeWorkflowExecutionResponse) -> list[WaitingTask]:
    """The run's tasks that no worker has; the workflow task first."""
    run_id = described.workflow_execution_info.execution.run_id
    task, found = described.pending_workflow_task, []
    if described.HasField("pending_workflow_task") and not task.HasField("started_time"):
        found.append(WaitingTask(run_id, task.attempt, instant_of(task.scheduled_time)))
    scheduled = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    return found + [_waiting(run_id, each) for each in described.pending_activities if each.state == scheduled]


def known_pollers(pollers: Sequence[PollerInfo]) -> Pollers:
    return frozenset((each.identity, each.last_access_time.ToNanoseconds()) for each in pollers)


def instant_of(stamp: Timestamp) -> datetime | None:
    """None if it is not set."""
    return stamp.ToDatetime(tzinfo=UTC) if stamp.seconds else None


def _waiting(run_id: str, activity: PendingActivityInfo) -> WaitingTask:
    since, failed_at = instant_of(activity.scheduled_time), instant_of(activity.last_attempt_complete_time)
    pause = since - failed_at if since is not None and failed_at is not None else timedelta()
    return WaitingTask(
        run_id,
        activity.attempt,
        since,
        activity.activity_type.name,
        activity.activity_id,
        max(0.0, pause.total_seconds()),
        is_due=not activity.HasField("next_attempt_schedule_time"),  # set until then, by Temporal's own clock
    )


@dataclass(frozen=True, slots=True)
class QueueState:
    """Who polls the queue, and the versions that get its tasks."""

    pollers: Pollers = frozenset()
    versioning: TaskQueueVersioningInfo | None = None


@dataclass(frozen=True, slots=True)
class Diversion:
    """Why the tasks go to others, and the command that brings them back."""

    error: str
    cure: str


def diversion(described: DescribeWorkflowExecutionResponse, queue: QueueState) -> Diversion | None:
    """Of the run itself, if a person pinned it; else of its task queue."""
    info = described.workflow_execution_info
    pinned = info.versioning_info.versioning_override.pinned.version
    if pinned.deployment_name:
        command = f"temporal workflow update-options -w {info.execution.workflow_id} --versioning-override-behavior"
        return Diversion(
            f"a person pinned its run to {_named(pinned)}, and our workers have no version",
            f"`{command} unspecified` gives it back to our workers",
        )
    current = queue.versioning.current_deployment_version if queue.versioning is not None else None
    if current is None or not current.deployment_name:
        return None
    command = "temporal worker deployment set-current-version --unversioned --deployment-name"
    return Diversion(
        f"the tasks of task queue {info.task_queue} go to {_named(current)}, and our workers have no version",
        f"`{command} {shlex.quote(current.deployment_name)}` gives them back to our workers",
    )


def _named(version: WorkerDeploymentVersion) -> str:
    return f"version {version.build_id!r} of the worker deployment {version.deployment_name!r}"
