"""The writers' task queue by Temporal's records: who polls it, and whether its tasks go to somebody else's version.

Our workers belong to no worker deployment. Once a person makes a version of one current for the queue, or pins the
writer's run to one, Temporal hands out the tasks to workers of that version only, and ours poll in vain.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.taskqueue.v1 import TaskQueueVersioningInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from oldhost_sync.temporal.waiting_tasks import Pollers


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
