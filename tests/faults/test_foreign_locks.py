"""Level L3: another program holds an entity's rows while an operation of it is in flight; nobody
else's operations wait (I10)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from tests.faults.foreign_locks import LOCKED, ForeignLock
from tests.faults.product import Product

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

APPLIED_WITHIN_S = 5.0
HELD_S = 9.0
EMERGENCY_EVERY_S = 3.0


@pytest.fixture
def product(tmp_path: Path, database: DatabaseUrls, temporal_dev_server: EmbeddedTemporal) -> Iterator[Product]:
    given = {"host": f"locks-{time.time_ns()}"}
    with Product(tmp_path, database, temporal_dev_server.address, latency_ms=400, given=given) as product:
        product.start_simulator()
        product.start("relay")
        product.start_worker()
        product.start_api()
        product.start_writer()
        yield product


@pytest.mark.timeout(180)
def test_rows_that_another_program_holds_delay_nobody_elses_emergencies(product: Product) -> None:
    """By the receipts of the applications and OldHost's own journal, for each table in turn."""
    product.api.change("B1", "booking_created", {"n": 0}, entity_type="booking")
    product.wait_for("the first operation", lambda: product.all_have_fates(1))
    waited: dict[str, list[float]] = {}
    for table in LOCKED:
        entity_type = "booking" if table == "entities" else "unit"
        held = f"held-{table}"
        product.fault("slow", next=1, extra_ms=1500)
        change_id = product.api.change(held, "booking_created", {"n": 1}, entity_type=entity_type)
        product.wait_for("it to be in flight", partial(_is_in_flight, product, change_id))
        with ForeignLock(product.database.app, table, held) as lock:
            assert lock.rows
            waited[table] = _emergencies(product, table)
        product.wait_for("its own fate", partial(_is_applied, product, change_id))
    assert {table: max(spans) for table, spans in waited.items() if max(spans) > APPLIED_WITHIN_S} == {}
    product.check_clean()


def _is_in_flight(product: Product, change_id: int) -> bool:
    return any(row["change_id"] == change_id for row in product.requests("SENT"))


def _is_applied(product: Product, change_id: int) -> bool:
    return product.fates()[change_id] == "APPLIED"


def _is_past(moment: float) -> bool:
    return time.time() >= moment


def _emergencies(product: Product, table: str) -> list[float]:
    """One now and then while the lock is held; gives accepted → applied in seconds, by the journal.
    Never applied: 999."""
    accepted: dict[int, float] = {}
    until = time.time() + HELD_S
    number = 0
    while time.time() < until:
        number += 1
        accepted[product.api.change(f"free-{table}-{number}", "guest_locked_out", {"n": number})] = time.time()
        product.wait_for("the next one's turn", partial(_is_past, time.time() + EMERGENCY_EVERY_S), HELD_S)
    applied = {
        entry["body"]["event_id"]: entry["applied_at"] for entry in product.journal() if entry["outcome"] == "applied"
    }
    return [max(0.0, applied.get(change_id, at + 999) - at) for change_id, at in accepted.items()]
