"""OldHosts that are away: what is done for the other hosts does not wait for their openings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from oldhost_sync.stack.machine import free_port
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import start_writer, writer_handle, writer_policy
from tests.faults.product import Product, host_name
from workflows.messages import OperatorAct

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

# Far more than the eight slots that openings once shared with everything else.
AWAY = 30
LIMIT = timedelta(seconds=20)
CHANGE = {"entity_type": "unit", "entity_id": "a", "event_type": "booking_created", "payload": {"of": "a"}}


@pytest.fixture
def product(tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal) -> Iterator[Product]:
    nobody = f"http://127.0.0.1:{free_port()}"
    away = ",".join(f"{host_name('away')}={nobody}" for _ in range(AWAY))
    with Product(tmp_path, database, temporal.address, given={"oldhost_urls": away}) as product:
        product.start_simulator()
        product.start_worker()
        yield product

        async def end(client: Client) -> None:
            for host in product.settings.oldhost_urls:
                await writer_handle(client, host).terminate("the test is over")

        product.ask(end)


def test_an_operators_act_and_a_submission_do_not_wait_for_the_openings_of_other_hosts(product: Product) -> None:
    async def start(client: Client) -> None:
        for host in (product.host, *product.settings.oldhost_urls):
            await start_writer(client, host, writer_policy(product.settings.of_host(host)))

    async def act(client: Client) -> None:
        writer = writer_handle(client, product.host)
        request = OperatorAct(operator="ana", reason="maintenance")
        await writer.execute_update("pause", request, rpc_timeout=LIMIT)
        await writer.execute_update("submit", CHANGE, rpc_timeout=LIMIT)

    product.ask(start)
    product.wait_for("its own session", lambda: product.status()["session"]["phase"] == "open")
    opening = "SELECT host FROM nonce_ledger WHERE epoch > 0 AND host <> %s"
    product.wait_for("as many openings as there were slots", lambda: len(product.sql(opening, product.host)) >= 8)
    product.ask(act)
    assert len(product.sql("SELECT id FROM outbox_events WHERE host = %s", product.host)) == 1
