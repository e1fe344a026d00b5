"""With keys set, Temporal holds nothing of people, through a change of the key and a new run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from temporalio.client import Client

from oldhost_sync.credentials import EncryptionKey
from oldhost_sync.temporal.client import data_converter, start_writer, writer_handle, writer_policy
from tests.faults.product import Product
from tests.integration.system.commands import oldhost_sync
from workflows.messages import OperatorAct

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

OLD, NEW = EncryptionKey("2026", bytes(range(32))), EncryptionKey("2027", bytes(range(1, 33)))


def test_temporal_holds_no_name_no_reason_and_no_payload_and_the_key_can_be_changed(product: Product) -> None:
    async def send(guest: str, keys: Sequence[EncryptionKey], *acts: str) -> None:
        client = await Client.connect(product.temporal_address, data_converter=data_converter(keys))
        writer = await start_writer(client, product.host, writer_policy(product.settings.of_host(product.host)))
        for act in acts:
            await writer.execute_update(act, OperatorAct(operator="Secret-Ana", reason="Secret-Lunch"))
        change = {"entity_type": "unit", "entity_id": "U1", "event_type": "checked_in", "payload": {"guest": guest}}
        await writer.signal("submit_change", change)

    def applied(count: int) -> bool:
        return list(product.fates().values()).count("APPLIED") == count

    product.start("relay", temporal_keys=(OLD,))
    product.start_worker("first", temporal_keys=(OLD,))
    asyncio.run(asyncio.wait_for(send("Secret-Guest-1", [OLD]), 60))
    product.wait_for("the first change", lambda: applied(1))
    product.children["first"].stop()
    product.start_worker("second", temporal_keys=(NEW, OLD))
    asyncio.run(asyncio.wait_for(send("Secret-Guest-2", [NEW, OLD], "pause", "resume"), 60))
    product.wait_for("the second change", lambda: applied(2))

    async def history(client: Client) -> bytes:
        found = await writer_handle(client, product.host).fetch_history()
        return b"".join(event.SerializeToString() for event in found.events)

    stored = product.ask(history)
    assert b"binary/encrypted" in stored
    assert {key.key_id.encode() in stored for key in (OLD, NEW)} == {True}
    assert b"Secret" not in stored


def test_what_was_handed_to_the_writer_is_read_with_the_keys(product: Product) -> None:
    product.start("relay", temporal_keys=(NEW,))
    product.start_worker(temporal_keys=(NEW,))
    product.start_api()
    change_id = product.api.change("U1", "checked_in", {"guest": 7}, key="k-1")
    product.wait_for("its fate", lambda: product.fates().get(change_id))
    product.sql("DELETE FROM outbox_events WHERE id = %s", change_id)
    named = json.loads(oldhost_sync(product, "lost-changes", "--json", temporal_keys=(NEW,)))
    assert [each["change_id"] for each in named] == [change_id]
