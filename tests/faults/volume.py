"""Incidents of volume: as many signals as Temporal takes, more updates than it takes, and a rebuild of a full house."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from oldhost_sync.temporal.client import DATA_CONVERTER, writer_handle
from tests.faults.product import Product
from tests.faults.scene import (
    EMERGENCY_SECONDS_MAX,
    QUERY_SECONDS_MAX,
    Figures,
    after,
    begin,
    emergency,
    end_writer,
    queries,
)

# Temporal's own limits of a run are 10,000 signals and 2,000 updates.
SIGNALS = 12_000
UPDATES = 2_100
FULL_HOUSE = 100_000
ROWS_AT_ONCE = 5_000


def many_signals(product: Product) -> Figures:
    """12,000 signals come while no worker runs: those that Temporal acknowledges are recorded once,
    and nobody waits for them."""
    begin(product)
    product.children["worker"].send_signal(signal.SIGTERM)
    assert product.children["worker"].wait(30) == 0
    acknowledged = product.ask(lambda _: _signal(product, SIGNALS))
    product.start_worker("second")
    began = time.monotonic()
    meanwhile = emergency(product, "meanwhile", seconds=120)
    product.wait_for("all recorded", lambda: not _missing(product, acknowledged), 240)
    recorded = time.monotonic() - began
    return {"acknowledged": len(acknowledged), "recorded in": round(recorded, 1), "emergency": round(meanwhile, 1)}


def many_updates(product: Product) -> Figures:
    """2,100 `submit` updates, one after the other: each is answered, across as many runs as it takes."""
    begin(product)
    with queries(product) as answers:
        took = product.ask(lambda _: _submit(product, UPDATES))
    assert not _missing(product, range(UPDATES))
    assert max(answers) <= QUERY_SECONDS_MAX, max(answers)
    return {"updates": UPDATES, "slowest": round(max(took), 2), "slowest answer": round(max(answers), 2)}


def large_rebuild(product: Product) -> Figures:
    """The writer is terminated with 100,000 changes outstanding: emergencies go at once while it reads them."""
    begin(product)
    _fill(product, FULL_HOUSE)
    waits: list[float] = []
    with queries(product) as answers:
        for number in range(3):
            end_writer(product, "terminate")
            for place in range(5):
                waits.append(emergency(product, f"other-{number}-{place}", seconds=60))
                product.wait_for("a second", after(1.0))
            loaded = product.wait_for("all is read", lambda: product.status()["waiting"] > FULL_HOUSE * 0.95, 120)
    assert max(waits) <= EMERGENCY_SECONDS_MAX, waits
    return {"slowest": round(max(waits), 2), "slowest answer": round(max(answers), 2), "read in": round(loaded + 5, 0)}


def _change(number: int) -> dict[str, Any]:
    return {
        "entity_type": "unit",
        "entity_id": f"S-{number}",
        "event_type": "booking_created",
        "payload": {"number": number},
    }


def _missing(product: Product, numbers: Sequence[int]) -> set[int]:
    rows = product.sql("SELECT JSON_VALUE(payload, '$.number') AS n FROM outbox_events")
    found = [int(row["n"]) for row in rows if row["n"] is not None]
    assert len(found) == len(set(found)), "a change was recorded twice"
    return set(numbers) - set(found)


async def _signal(product: Product, count: int) -> list[int]:
    """The numbers that Temporal acknowledged; the others it refused."""
    handle = writer_handle(await Client.connect(product.temporal_address), product.host)
    acknowledged: list[int] = []

    async def one(number: int) -> None:
        try:
            await handle.signal("submit_change", _change(number))
        except RPCError:
            return
        acknowledged.append(number)

    for start in range(0, count, 40):
        await asyncio.gather(*(one(number) for number in range(start, min(start + 40, count))))
    return acknowledged


async def _submit(product: Product, count: int) -> list[float]:
    client = await Client.connect(product.temporal_address, data_converter=DATA_CONVERTER)
    handle = writer_handle(client, product.host)
    took: list[float] = []
    for number in range(count):
        began = time.monotonic()
        await asyncio.wait_for(handle.execute_update("submit", _change(number)), 30)
        took.append(time.monotonic() - began)
    return took


def _fill(product: Product, count: int) -> None:
    """So many changes of as many units, relayed an hour ago: four of five LWW."""
    with closing(product.connect_database()) as connection, connection.cursor() as cursor:
        connection.begin()
        for start in range(0, count, ROWS_AT_ONCE):
            numbers = range(start, min(start + ROWS_AT_ONCE, count))
            cursor.executemany(
                "INSERT IGNORE INTO units (host, id, state) VALUES (%s, %s, '{}')",
                [(product.host, f"F-{number}") for number in numbers],
            )
            cursor.executemany(
                "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
                "payload, priority_class, created_at, relayed_at) VALUES (%s, %s, '', 'unit', %s, %s, '{}', %s, "
                "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR, UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)",
                list(map(partial(_row, product.host), numbers)),
            )
        connection.commit()


def _row(host: str, number: int) -> tuple[str, str, str, str, str]:
    lww = number % 5 > 0
    event = "unit_status_changed" if lww else "booking_created"
    return host, f"f-{number}", f"F-{number}", event, "LWW" if lww else "TXN"
