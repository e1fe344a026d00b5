"""An application's transaction stays open for half a minute under the server's defaults: others' emergencies are taken
at each door, and reach OldHost as if there were none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine
from temporalio.client import Client

from oldhost_sync import record_change
from oldhost_sync.policy import limits
from oldhost_sync.temporal.client import writer_handle
from tests.conformance.private_mariadb import PrivateMariaDB, private_mariadb
from tests.faults.product import Product

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

OPEN_SECONDS = 30.0
# Of one emergency, from the call to OldHost's answer: what we aim at under full backlog.
EMERGENCY_SECONDS = 2.0
PLACES = ("a", "h", "n", "z")


@pytest.fixture(params=["", "MIXED"], ids=["without a binary log", "with a mixed binary log"])
def mariadb_server(request: pytest.FixtureRequest, mariadb_server: PrivateMariaDB) -> Iterator[PrivateMariaDB]:
    """The session's server, which has no binary log; and one with MariaDB's default format of it."""
    if not request.param:
        yield mariadb_server
        return
    with private_mariadb(binlog_format=request.param) as server:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@log_bin, @@binlog_format")
            assert cursor.fetchone() == (1, request.param)
        yield server


def emergency(entity_id: str, key: str) -> dict[str, Any]:
    named = {"entity_type": "unit", "entity_id": entity_id, "event_type": "guest_locked_out"}
    return named | {"payload": {"door": "front"}, "idempotency_key": key}


def call(product: Product, door: str, place: str, key: str) -> None:
    """An emergency of a unit that sorts before, between or after the transaction's; raises if it is refused."""
    change = emergency(f"{place}-{key}", key)
    if door == "http":
        product.api.change(change["entity_id"], change["event_type"], change["payload"], key=key)
        return

    async def ask(client: Client) -> None:
        writer = writer_handle(client, product.host)
        if door == "update":
            await writer.execute_update("submit", change)
        else:
            await writer.signal("submit_change", change)

    product.ask(ask)


def fates(product: Product) -> dict[str, datetime]:
    found = product.sql("SELECT idempotency_key, processed_at FROM outbox_events WHERE outcome = 'APPLIED'")
    return {row["idempotency_key"]: row["processed_at"].replace(tzinfo=UTC) for row in found}


def test_emergencies_by_http_update_and_signal_are_applied_beside_an_open_transaction(
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
    called: dict[str, datetime] = {}
    with application.connect() as connection:
        assert connection.exec_driver_sql("SELECT @@tx_isolation").scalar_one() == "REPEATABLE-READ"
        for key in ("m", "b", "y"):
            record_change(connection, **mine, payload={"n": 0}, idempotency_key=key)
        later = datetime.now(UTC) + timedelta(days=1)
        record_change(connection, **mine, payload={}, idempotency_key="later", not_before=later)
        before, since = mariadb_server.row_lock("time"), time.monotonic()
        while time.monotonic() - since < OPEN_SECONDS:
            for place in PLACES:
                for door in ("http", "update", "signal"):
                    key = f"{place}-{door}-{len(called)}"
                    called[key] = datetime.now(UTC)
                    call(product, door, place, key)
                    product.wait_for("its fate", lambda key=key: key in fates(product))  # type: ignore[misc]
        waited_ms = mariadb_server.row_lock("time") - before
        connection.commit()
    application.dispose()
    # All of them together, by the server's count: less than one that waits until it is refused.
    assert waited_ms < 1000 * limits.LOCK_WAIT_SECONDS_MAX
    ended = fates(product)
    took = {key: (ended[key] - at).total_seconds() for key, at in called.items()}
    assert {key: seconds for key, seconds in took.items() if seconds > EMERGENCY_SECONDS} == {}
    product.wait_for("the transaction's own", lambda: product.all_have_fates(3 + len(called)))
    product.check_clean()
