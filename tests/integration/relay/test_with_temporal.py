"""The relay against a real Temporal server that goes away: every change reaches the writer's history in the end."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.converter import DataConverter

from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.relay.relay import Relay, RelayState
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import DATA_CONVERTER, signal_enqueue, writer_handle
from tests.integration.relay.listening import until
from tests.integration.relay.test_outages import QUICK, running
from tests.integration.store.writing import HOST, recorded, rows
from workflows.messages import EnqueueBatch, WriterPolicy, from_wire

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal]


async def held_by_the_writer(client: Client) -> list[ChangeRef]:
    """The refs in the signals of the writer's history, in their order."""
    converter: DataConverter = client.data_converter
    refs: list[ChangeRef] = []
    async for event in writer_handle(client, HOST).fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            signalled = event.workflow_execution_signaled_event_attributes
            assert signalled.signal_name == "enqueue"
            (batch,) = await converter.decode(signalled.input.payloads, [EnqueueBatch])
            refs += [from_wire(item) for item in batch.refs]
    return refs


def test_the_first_change_starts_the_writer_and_a_restarted_temporal_misses_none(
    engine: Engine, tmp_path: Path
) -> None:
    async def scenario(server: EmbeddedTemporal) -> None:
        client = await Client.connect(server.address, data_converter=DATA_CONVERTER)
        relay = Relay(
            Transactions(engine), partial(signal_enqueue, client, HOST, WriterPolicy()), HOST, owner="one", pace=QUICK
        )
        wanted = [recorded(engine, entity_id="a").ref]
        async with running(relay):
            await until(lambda: not unrelayed(engine), "the first")
            server.kill()
            wanted.append(recorded(engine, entity_id="b").ref)
            await until(lambda: relay.condition is RelayState.WRITER_AWAY, "noticed")
            wanted.append(recorded(engine, entity_id="c", event_type="guest_locked_out").ref)
            await asyncio.to_thread(server.start)
            await until(lambda: not unrelayed(engine), "all others")
        held = await held_by_the_writer(client)
        assert set(held) == set(wanted)
        assert wanted[0] == held[0]

    with EmbeddedTemporal(tmp_path / "temporal") as server:
        asyncio.run(scenario(server))


def unrelayed(engine: Engine) -> bool:
    return bool(rows(engine, "SELECT id FROM outbox_events WHERE relayed_at IS NULL"))
