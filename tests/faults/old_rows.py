"""An incident of age: a million changes past their retention, forgotten while applications go on writing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from oldhost_sync.policy.limits import RETENTION_BATCH_ROWS, RETENTION_DAYS
from oldhost_sync.store import retention
from oldhost_sync.store.engine import create_engine
from tests.faults.product import Product
from tests.faults.scene import Figures, begin

ROWS = 1_000_000
ROWS_AT_ONCE = 100_000
MEASURED_SECONDS = 60.0
WRITE_EVERY_SECONDS = 0.05
SECONDS_PER_1000_MAX = 0.1
DELAY_SECONDS_MAX = 0.1
# 25 million changes a day.
ROWS_PER_SECOND_MIN = 290


def million_old_rows(product: Product) -> Figures:
    """What a batch costs, how many rows go in a second at the relay's pace, and what that adds to
    the slowest write beside it."""
    begin(product)
    _fill(product)
    with writing_beside(product, "before") as before:
        threading.Event().wait(MEASURED_SECONDS / 2)
    with writing_beside(product, "beside") as beside:
        gone, working = _forget(product)
    found: Figures = {
        "seconds per 1,000": round(1000 * working / gone, 3),
        "rows a second": round(gone / MEASURED_SECONDS),
        "slowest write before": round(max(before), 3),
        "slowest write beside": round(max(beside), 3),
        "median write before": round(sorted(before)[len(before) // 2], 4),
        "median write beside": round(sorted(beside)[len(beside) // 2], 4),
    }
    assert found["seconds per 1,000"] <= SECONDS_PER_1000_MAX, found
    assert found["rows a second"] >= ROWS_PER_SECOND_MIN, found
    assert max(beside) - max(before) <= DELAY_SECONDS_MAX, found
    return found


def _fill(product: Product) -> None:
    """Three months of changes of 50,000 units, a third of them with an operation of their own."""
    ago = f"UTC_TIMESTAMP(6) - INTERVAL {RETENTION_DAYS + 10} DAY"
    with closing(product.connect_database()) as connection, connection.cursor() as cursor:
        for first in range(0, ROWS, ROWS_AT_ONCE):
            cursor.execute(
                "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
                "payload, "
                "priority_class, relayed_at, processed_at, outcome, fate_sequence) SELECT %s, SHA2(seq, 256), "
                "REPEAT('h', 32), 'unit', CONCAT('unit-', (seq * 7919) MOD 50000), 'unit_status_changed', "
                "CONCAT('{\"status\":\"', REPEAT('x', 150), '\"}'), IF(seq MOD 5 = 0, 'TXN', 'LWW'), "
                f"{ago}, {ago} + INTERVAL seq * 1000 MICROSECOND, IF(seq MOD 3 = 0, 'APPLIED', 'SUPERSEDED'), "
                f"1000000 + seq FROM seq_{first + 1}_to_{first + ROWS_AT_ONCE}",
                (product.host,),
            )
            connection.commit()


def _forget(product: Product) -> tuple[int, float]:
    """As the relay does, with a pause as long as each batch: rows gone, and seconds spent on them."""
    engine = create_engine(product.database.app)
    place, gone, working = retention.BEGINNING, 0, 0.0
    until = time.monotonic() + MEASURED_SECONDS
    while (began := time.monotonic()) < until:
        with engine.begin() as connection:
            before = retention.horizon_of(connection, product.host, retention.RetentionDays())
            done = retention.prune(connection, product.host, before, rows=RETENTION_BATCH_ROWS, place=place)
        took = time.monotonic() - began
        place, gone, working = done.place, gone + done.gone, working + took
        threading.Event().wait(took)
    engine.dispose()
    return gone, working


@contextmanager
def writing_beside(product: Product, name: str) -> Iterator[list[float]]:
    """Writes through the API, twenty a second, and how long each took."""
    took: list[float] = []
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.wait(WRITE_EVERY_SECONDS):
            number += 1
            began = time.monotonic()
            product.api.change(f"unit-{number % 50}", "unit_status_changed", {"status": f"{name} {number}"})
            took.append(time.monotonic() - began)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join()
