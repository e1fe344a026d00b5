"""What Temporal's list of workflows shows of a writer, on the dev server: the time-skipping one has no list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, RemoveSearchAttributesRequest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import DATA_CONVERTER
from oldhost_sync.temporal.search_attributes import Registration, register
from oldhost_sync.temporal.writer_health import writer_health
from tests.workflows.conftest import Stage, Writer
from workflows.status_report import HOST, STATE

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


async def test_a_worker_registers_the_states_and_they_are_listed_from_its_second_look_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []

    async def look_again(_: float) -> None:
        looks.append(registration.is_known)
        if len(looks) == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr("oldhost_sync.temporal.search_attributes.asyncio.sleep", look_again)
    registration = Registration()
    with pytest.raises(asyncio.CancelledError):
        await registration.watch(stage.env.client)
    assert looks == [False, True]


async def test_an_attribute_of_another_type_is_not_used(stage: Stage) -> None:
    client = stage.env.client
    wrong = {
        HOST.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
        STATE.name: IndexedValueType.INDEXED_VALUE_TYPE_INT,
    }
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(namespace=client.namespace, search_attributes=wrong)
    )
    assert not await register(client)


async def test_a_writer_goes_on_when_a_worker_registers_what_somebody_removed(stage: Stage) -> None:
    assert await register(stage.env.client)
    async with stage.writer(lists_states=True) as writer, asyncio.timeout(60):
        assert await hosts_listed(stage, "SENDING") == [writer.world.host]
        await stage.env.client.operator_service.remove_search_attributes(
            RemoveSearchAttributesRequest(namespace=stage.env.client.namespace, search_attributes=[STATE.name])
        )
        paused = asyncio.create_task(writer.operate("pause"))
        await task_fails(writer, "BadSearchAttributes")
        watching = asyncio.create_task(Registration().watch(stage.env.client))
        assert await paused == "paused"
        watching.cancel()
        assert await hosts_listed(stage, "PAUSED") == [writer.world.host]


async def task_fails(writer: Writer, why: str) -> None:
    while why not in (await writer_health(writer.env.client, writer.world.host)).error:
        await asyncio.sleep(0.2)
