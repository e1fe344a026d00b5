"""An application's transaction stays open under the server's defaults: others' emergencies are taken at each door."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine
from temporalio.client import Client

from oldhost_sync import record_change
from oldhost_sync.policy import limits
from oldhost_sync.temporal.client import writer_handle
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.faults.product import Product
from tests.integration.system.commands import signal_writer

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

ROUNDS = 5


def emergency(entity_id: str, key: str) -> dict[str, Any]:
    named = {"entity_type": "unit", "entity_id": entity_id, "event_type": "guest_locked_out"}
    return named | {"payload": {"door": "front"}, "idempotency_key": key}


def update(product: Product, change: dict[str, Any]) -> None:
    async def ask(client: Client) -> None:
        await writer_handle(client, product.host).execute_update("submit", change)

    product.ask(ask)


def test_emergencies_by_http_update_and_signal_are_taken_beside_an_open_transaction(
    product: Product, mariadb_server: PrivateMariaDB
) -> None:
    product.start_api()
    product.start("relay")
    product.start_worker()
    product.api.change("mine", "booking_created", {"n": 0}, key="m")
    product.wait_for("the first operation", lambda: product.all_have_fates(1))
    application = create_engine(product.database.app)
    mine: dict[str, Any] = {
        "host": product.host,
        "entity_type": "unit",
        "entity_id": "mine",
        "event_type": "booking_created",
    }
    with application.connect() as connection:
        assert connection.exec_driver_sql("SELECT @@tx_isolation").scalar_one() == "REPEATABLE-READ"
        for key in ("m", "b", "y"):
            record_change(connection, **mine, payload={"n": 0}, idempotency_key=key)
        later = datetime.now(UTC) + timedelta(days=1)
        record_change(connection, **mine, payload={}, idempotency_key="later", not_before=later)
        before = mariadb_server.row_lock("time")
        for number in range(ROUNDS):
            for place in ("a", "h", "n", "z"):
                # Neither is refused: each would raise.
                product.api.change(f"http-{place}{number}", "guest_locked_out", {}, key=f"{place}-http-{number}")
                update(product, emergency(f"update-{place}{number}", f"{place}-update-{number}"))
            signal_writer(product, "submit_change", emergency(f"signal-{number}", f"n-signal-{number}"))
        product.wait_for("all of them to be applied", lambda: product.all_have_fates(1 + 9 * ROUNDS))
        waited_ms = mariadb_server.row_lock("time") - before
        connection.commit()
    application.dispose()
    # All of them together, by the server's count: less than one that waits until it is refused.
    assert waited_ms < 1000 * limits.LOCK_WAIT_SECONDS_MAX
    product.wait_for("the transaction's own", lambda: product.all_have_fates(3 + 9 * ROUNDS))
    product.check_clean()
