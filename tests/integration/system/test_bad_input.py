"""What nobody should send, and a webhook that nobody serves: the writer goes on, and people see what came."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

from oldhost_sync.temporal.client import start_writer, writer_handle, writer_policy
from oldhost_sync.temporal.writer_client import WriterClient
from tests.faults.product import Product
from tests.integration.activities.webhook import Webhook
from tests.integration.system.changes import record
from workflows.messages import OperatorAct

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

HALF = "x\ud800"
GOOD = {"entity_type": "unit", "entity_id": "U1", "event_type": "checked_in", "payload": {}}


async def send_half_characters(client: Client, host: str) -> None:
    """By every way in that there is."""
    writer = writer_handle(client, host)
    for change in ({HALF: 1}, *({**GOOD, field: HALF} for field in GOOD), {**GOOD, "payload": {HALF: HALF}}):
        await writer.signal("submit_change", change)
        with contextlib.suppress(WorkflowUpdateFailedError):
            await writer.execute_update("apply_now", change)
    for place in (2, 3, 4):
        ref: list[Any] = [10**6, "EMERGENCY", "unit", "U1", "guest_locked_out", 1, ""]
        ref[place] = HALF
        await writer.signal("enqueue", {"refs": [ref]})
    for update in ("pause", "resume", "flush"):
        with contextlib.suppress(WorkflowUpdateFailedError):
            await writer.execute_update(update, OperatorAct(operator=HALF, reason=HALF))
    with contextlib.suppress(WorkflowUpdateFailedError):
        await writer.execute_update("resume", OperatorAct(operator="ana", reason="if it was paused"))


def test_half_a_character_by_any_way_in_stops_nothing_and_is_told(product: Product, webhook: Webhook) -> None:
    product.start("relay")
    product.start_worker(alert_webhook_url=webhook.url)
    product.start_writer()
    product.ask(lambda client: asyncio.wait_for(send_half_characters(client, product.host), 60))
    (change_id,) = record(product, 1)
    product.wait_for("the good change", lambda: product.fates()[change_id] == "APPLIED")

    def refusals() -> list[str]:
        return [row["error"] for row in product.sql("SELECT error FROM outbox_events WHERE outcome = 'REFUSED'")]

    product.wait_for("all refusals", lambda: len(refusals()) >= len(GOOD) + 2)
    refused = refusals()
    assert len(refused) == len(GOOD) + 2
    assert any(r"unknown fields: x\ud800" in reason for reason in refused)
    product.wait_for("the webhook", lambda: webhook.came.qsize() >= len(refused))
    product.check_clean()


def test_webhook_that_never_answers_holds_up_neither_sending_nor_a_new_run(product: Product, webhook: Webhook) -> None:
    hanging = threading.Event()
    webhook.answer = lambda _: 200 if hanging.wait(30) else 500
    product.start("relay")
    product.start_worker(alert_webhook_url=webhook.url)
    product.start_writer()
    try:
        product.ask(lambda client: writer_handle(client, product.host).signal("submit_change", {"no": "change"}))
        product.wait_for("the webhook", webhook.came.qsize)
        slower = writer_policy(product.settings.of_host(product.host).model_copy(update={"sweep_seconds": 6.0}))
        product.ask(lambda client: start_writer(client, product.host, slower))
        (change_id,) = record(product, 1)
        product.wait_for("the good change", lambda: product.fates()[change_id] == "APPLIED", seconds=10)
        assert product.sql("SELECT id FROM alerts WHERE delivered_at IS NOT NULL") == []
    finally:
        hanging.set()


def test_the_audit_tells_the_api_s_acts_from_those_that_anybody_sends_to_temporal(product: Product) -> None:
    """Also that the writer of today's release carries a signature from the update to the database."""
    key = "k" * 32
    product.start_worker(act_keys=(key,))
    product.start_writer()
    product.wait_for("the writer to know what waits", lambda: product.status()["state"] != "REBUILDING")

    async def act(client: Client) -> None:
        async def connected() -> Client:
            return client

        api = WriterClient(product.host, query_seconds=5, update_seconds=15, connect=connected, act_keys=(key,))
        await api.update("pause", OperatorAct(operator="ana", reason="lunch", channel="api"))
        resume = OperatorAct(operator="ana", reason="lunch is over", channel="api")
        await writer_handle(client, product.host).execute_update("resume", resume)
        older = {"operator": "bob", "reason": "as a sender of 0.1"}
        await writer_handle(client, product.host).execute_update("pause", older)

    product.ask(lambda client: asyncio.wait_for(act(client), 60))
    found = product.sql("SELECT operator, channel, verified FROM operator_audit ORDER BY id")
    assert [(row["operator"], row["channel"], row["verified"]) for row in found] == [
        ("ana", "api", 1),
        ("ana", "temporal", 0),
        ("bob", "temporal", 0),
    ]
