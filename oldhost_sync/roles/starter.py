"""Starts the writer of SYNC_HOST, or attaches to the running one and sends it these settings; safe to run twice."""

from __future__ import annotations

import asyncio

from oldhost_sync.environment import database, settings
from oldhost_sync.explanations import leave_after
from oldhost_sync.secret_keys import encryption_keys
from oldhost_sync.settings import Settings
from oldhost_sync.temporal.client import connect, leave, start_writer, writer_policy
from oldhost_sync.temporal.search_attributes import register
from oldhost_sync.temporal.writer_health import describe_writer, status_name
from oldhost_sync.user_errors import refuse_arguments


async def run(settings: Settings) -> str:
    """Start or attach; returns the workflow's id and run id as one line."""
    client = await connect(keys=encryption_keys(settings))
    await register(client)
    policy = writer_policy(settings.of_host(settings.host))
    handle = await start_writer(client, settings.host, policy)
    await handle.signal("configure", policy)
    described = await describe_writer(client, settings.host)
    if described is None:
        return f"{handle.id} is gone"
    run_id = described.workflow_execution_info.execution.run_id
    return f"{handle.id} (run {run_id}) is {status_name(described)}"


def main() -> None:
    refuse_arguments("starter.py")
    try:
        config = settings()
        if config.database_url:  # without it the host can't be checked
            with database(config):
                pass
        print(asyncio.run(run(config)))
    except Exception as error:  # noqa: BLE001 - the one place that turns every error into text
        leave_after(error, "starter.py")
    leave(0)
