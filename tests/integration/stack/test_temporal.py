"""The Temporal dev server of our own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from temporalio.client import Client

from oldhost_sync.stack.machine import PortTaken
from oldhost_sync.stack.temporal import EmbeddedTemporal, answers
from tests.conftest import TimeSkipping

pytestmark = pytest.mark.temporal


async def start_workflow(address: str) -> None:
    client = await Client.connect(address)
    await client.start_workflow("Nobody", id="kept", task_queue="nobody")


async def is_running(address: str) -> bool:
    client = await Client.connect(address)
    status = (await client.get_workflow_handle("kept").describe()).status
    return status is not None and status.name == "RUNNING"


def test_workflows_survive_the_server_in_its_database_file(tmp_path: Path) -> None:
    with EmbeddedTemporal(tmp_path) as server:
        asyncio.run(start_workflow(server.address))
        address = server.address
        server.stop()
        assert not answers(address, 0.2)
        server.start()
        assert server.address == address
        assert asyncio.run(is_running(address))


def test_a_taken_port_is_said_and_not_waited_for(temporal_dev_server: EmbeddedTemporal) -> None:
    with pytest.raises(PortTaken, match="needed for Temporal"):
        EmbeddedTemporal(None, temporal_dev_server.port).start()


def test_time_skips_in_the_test_server(time_skipping_env: TimeSkipping) -> None:
    async def fifteen_minutes() -> float:
        async with time_skipping_env() as env:
            before = await env.get_current_time()
            await env.sleep(900)
            return (await env.get_current_time() - before).total_seconds()

    assert asyncio.run(fifteen_minutes()) >= 900
