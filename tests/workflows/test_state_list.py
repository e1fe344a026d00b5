"""What Temporal's list of workflows shows of a writer, on the dev server: the time-skipping one has no list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from oldhost_sync.search_attributes import Registration, register
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal import DATA_CONVERTER
from tests.workflows.conftest import Stage
from workflows.state_list import HOST, STATE

pytestmark = [pytest.mark.temporal, pytest.mark.slow]


@pytest.fixture
def stage() -> Iterator[Stage]:
    """On a server of its own: what a namespace knows can't be taken back."""
    with EmbeddedTemporal(None) as server, asyncio.Runner() as runner:
        client = runner.run(Client.connect(server.address, data_converter=DATA_CONVERTER))
        yield Stage(runner, WorkflowEnvironment.from_client(client))


async def hosts_listed(stage: Stage, state: str) -> list[str | None]:
    """Waited for: the list is written after the workflow's history."""
    found: list[str | None] = []
    while not found:
        listed = stage.env.client.list_workflows(f"{STATE.name} = '{state}'")
        found = [one.typed_search_attributes.get(HOST) async for one in listed]
        await asyncio.sleep(0.05)
    return found


async def test_the_list_shows_which_writers_are_paused(stage: Stage) -> None:
    assert await register(stage.env.client)
    async with stage.writer(lists_states=True) as writer, asyncio.timeout(30):
        assert await hosts_listed(stage, "SENDING") == [writer.world.host]
        await writer.operate("pause")
        assert await hosts_listed(stage, "PAUSED") == [writer.world.host]


async def test_a_writer_in_a_namespace_that_knows_no_states_goes_on_without(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        await writer.operate("pause")
        await writer.operate("resume")
        await writer.take("TXN", "a")
        await writer.until_quiet()
        assert (await writer.handle.describe()).typed_search_attributes.get(STATE) is None


async def test_the_states_are_listed_when_two_looks_have_found_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []

    async def look_again(seconds: float) -> None:
        looks.append(registration.is_known)
        if len(looks) == 2:
            await register(stage.env.client)
        if len(looks) == 4:
            raise asyncio.CancelledError

    monkeypatch.setattr("oldhost_sync.search_attributes.asyncio.sleep", look_again)
    registration = Registration()
    with pytest.raises(asyncio.CancelledError):
        await registration.watch(stage.env.client)
    assert looks == [False, False, False, True]
