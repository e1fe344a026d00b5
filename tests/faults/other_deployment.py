"""Somebody else's worker deployment on the writers' task queue, and Temporal's own commands about it."""

from __future__ import annotations

import asyncio
import contextlib
import shlex

from temporalio import workflow
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentVersionRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig

from oldhost_sync.stack.machine import find_program
from workflows.messages import TASK_QUEUE

VERSION = WorkerDeploymentVersion("theirs", "b 1")
MAKE_CURRENT = (
    "worker deployment set-current-version --deployment-name theirs --build-id 'b 1' --ignore-missing-task-queues --yes"
)
PIN = (
    "workflow update-options --versioning-override-behavior pinned --versioning-override-deployment-name theirs "
    "--versioning-override-build-id 'b 1' -w"
)


@workflow.defn(name="Theirs", versioning_behavior=VersioningBehavior.PINNED)
class Theirs:
    @workflow.run
    async def run(self) -> None:
        """Never started."""


async def make_version(client: Client) -> None:
    """A worker of that deployment polls our task queue for a moment."""
    config = WorkerDeploymentConfig(version=VERSION, use_worker_versioning=True)
    runner = UnsandboxedWorkflowRunner()
    async with Worker(
        client, task_queue=TASK_QUEUE, workflows=[Theirs], workflow_runner=runner, deployment_config=config
    ):
        request = DescribeWorkerDeploymentVersionRequest(namespace=client.namespace, version="theirs.b 1")
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(RPCError):
                    await client.workflow_service.describe_worker_deployment_version(request)
                    return
                await asyncio.sleep(0.1)


async def temporal(address: str, command: str) -> None:
    """Run a command of Temporal's own binary."""
    program = find_program("temporal")
    assert program is not None
    child = await asyncio.create_subprocess_exec(
        program,
        *shlex.split(command),
        "--address",
        address,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await child.communicate()
    assert child.returncode == 0, said.decode()
