"""The scene of an incident: the product at work, many changes at once, runs ended by hand, and
questions asked meanwhile."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from temporalio.client import Client

from oldhost_sync.temporal.client import DATA_CONVERTER, writer_handle
from tests.faults.product import Product
from workflows.messages import workflow_id

Figures = dict[str, Any]

EMERGENCY_SECONDS_MAX = 2.0
QUERY_SECONDS_MAX = 1.0

# Real spans, where an incident is about them.
REAL: dict[str, Any] = {"request_timeout_seconds": 5.0, "settle_seconds": 10.0, "sweep_seconds": 300.0}


def begin(product: Product) -> None:
    """Every role runs, and a first change is applied."""
    product.start_api()
    product.start("relay")
    product.start_worker()
    product.api.change("warm", "booking_created", {})
    product.wait_for("the first change", lambda: product.all_have_fates(1), 60)


def emergency(product: Product, entity: str, *, seconds: float = 30.0) -> float:
    """Seconds from an emergency's acceptance to OldHost's 200."""
    change_id = product.api.change(entity, "guest_locked_out", {})
    return product.wait_for(
        "the emergency", lambda: any(one == change_id for _, one in product.applied()[-50:]), seconds
    )


def insert(product: Product, changes: list[tuple[str, str]]) -> None:
    """(class, unit) each, recorded as applications would, but many at a time."""
    events = {"EMERGENCY": "guest_locked_out", "TXN": "booking_created", "LWW": "unit_status_changed"}
    with closing(product.connect_database()) as connection, connection.cursor() as cursor:
        units = sorted({entity for _, entity in changes})
        cursor.executemany(
            "INSERT IGNORE INTO units (host, id, state) VALUES (%s, %s, '{}')",
            [(product.host, entity) for entity in units],
        )
        stamp = time.monotonic_ns()
        rows = [
            (product.host, f"k-{stamp}-{number}", entity, events[cls], "{}", cls)
            for number, (cls, entity) in enumerate(changes)
        ]
        connection.begin()
        cursor.executemany(
            "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
            "payload, "
            "priority_class, created_at) VALUES (%s, %s, '', 'unit', %s, %s, %s, %s, UTC_TIMESTAMP(6))",
            rows,
        )
        connection.commit()


def dead_letters(product: Product, count: int) -> None:
    """So many rejected changes, each of a unit of its own, as an hour of a bad rule at OldHost leaves them."""
    insert(product, [("TXN", f"dead-{number}") for number in range(count)])
    product.sql(
        "UPDATE outbox_events SET outcome = 'DEAD', processed_at = UTC_TIMESTAMP(6), relayed_at = UTC_TIMESTAMP(6), "
        "error = 'rejected' WHERE entity_id LIKE 'dead-%%' AND processed_at IS NULL"
    )


def outstanding(product: Product) -> int:
    found: int = product.sql("SELECT COUNT(*) AS n FROM outbox_events WHERE processed_at IS NULL")[0]["n"]
    return found


def unrelayed(product: Product) -> int:
    found: int = product.sql(
        "SELECT COUNT(*) AS n FROM outbox_events WHERE processed_at IS NULL AND relayed_at IS NULL"
    )[0]["n"]
    return found


def seconds_to_drain(product: Product) -> float:
    return product.wait_for("all fates", lambda: not outstanding(product), 600)


def end_writer(product: Product, how: str) -> None:
    async def end(client: Client) -> None:
        handle = writer_handle(client, product.host)
        await (handle.terminate("an incident") if how == "terminate" else handle.cancel())

    product.ask(end)


def after(seconds: float) -> Callable[[], bool]:
    over_at = time.monotonic() + seconds
    return lambda: time.monotonic() >= over_at


@contextmanager
def queries(product: Product) -> Iterator[list[float]]:
    """Ask the writer for its status twice a second, and keep how long each answer took."""
    took: list[float] = []
    over = threading.Event()

    async def ask() -> None:
        client = await Client.connect(product.temporal_address, data_converter=DATA_CONVERTER)
        handle = client.get_workflow_handle(workflow_id(product.host))
        while not over.is_set():
            began = time.monotonic()
            try:
                await asyncio.wait_for(handle.query("status"), 20)
            except Exception as error:
                print(f"no answer: {error}", file=sys.stderr)
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.5)

    thread = threading.Thread(target=lambda: asyncio.run(ask()))
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join()


def figures_of(waits: list[float]) -> Figures:
    assert max(waits) <= EMERGENCY_SECONDS_MAX, waits
    return {"emergencies": len(waits), "slowest": round(max(waits), 2)}
