"""An activity's environment in which the writer of a host has called it."""

from __future__ import annotations

from dataclasses import replace

from temporalio.testing import ActivityEnvironment

from workflows.messages import workflow_id


def called_by_writer(host: str = "oldhost") -> ActivityEnvironment:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, workflow_id=workflow_id(host))
    return environment
