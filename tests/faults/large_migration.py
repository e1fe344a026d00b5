"""An incident of size: a migration that adds indexes to five million changes and their operations, while all goes on.

The indexes are taken away under the running roles: a migration adds what is not there.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from oldhost_sync.store.engine import needed_revision
from oldhost_sync.store.schema_migration import migrate
from tests.faults.old_rows import writing_beside
from tests.faults.product import Product, connect_database
from tests.faults.scene import Figures, begin, emergency

ROWS = 5_000_000
ROWS_AT_ONCE = 10_000
# For one statement, beside everything else.
FILL_SECONDS_MAX = 300
OPERATION = "change_id, idempotency_key, epoch, body, status, sends, completed_at"
BEFORE_SECONDS = 20.0
SECONDS_MAX = 1.0
INDEXES = {
    "outbox_events": ("ix_outbox_events_class", "ix_outbox_events_event", "ix_outbox_events_entity"),
    "nonce_requests": ("ix_nonce_requests_completed",),
    "nonce_requests_archive": ("ix_nonce_requests_archive_completed", "ix_nonce_requests_archive_archived"),
}


def large_migration(product: Product) -> Figures:
    """How long the migration takes, and the slowest write and emergency before and beside it."""
    begin(product)
    _fill(product)
    _take_back(product)
    with writing_beside(product, "before") as before:
        emergencies_before = _emergencies(product, time.monotonic() + BEFORE_SECONDS, "before")
    with writing_beside(product, "beside") as beside, ThreadPoolExecutor(1) as thread:
        began = time.monotonic()
        migrating = thread.submit(migrate, product.database.migration)
        emergencies: list[float] = []
        while not migrating.done():
            emergencies += _emergencies(product, time.monotonic(), f"beside {len(emergencies)}")
        took = time.monotonic() - began
    found: Figures = {
        "migrated to": migrating.result(),
        "in": round(took),
        "slowest write before": round(max(before), 3),
        "slowest write beside": round(max(beside), 3),
        "slowest emergency before": round(max(emergencies_before), 2),
        "slowest emergency beside": round(max(emergencies), 2),
    }
    assert found["migrated to"] == needed_revision(), found
    assert max(beside) <= SECONDS_MAX, found
    assert max(emergencies) - max(emergencies_before) <= SECONDS_MAX, found
    return found


def _emergencies(product: Product, until: float, name: str) -> list[float]:
    """One a second, at least one."""
    took: list[float] = []
    while not took or time.monotonic() < until:
        took.append(emergency(product, f"{name} {len(took)}"))
        threading.Event().wait(max(0.0, 1.0 - took[-1]))
    return took


def _take_back(product: Product) -> None:
    with (
        closing(connect_database(product.database.migration, FILL_SECONDS_MAX)) as connection,
        connection.cursor() as cursor,
    ):
        for table, names in INDEXES.items():
            cursor.execute(f"ALTER TABLE {table} " + ", ".join(f"DROP INDEX {name}" for name in names))
        cursor.execute("DELETE FROM oldhost_sync_revision")


def _fill(product: Product) -> None:
    """Two months of 50,000 units; each change has an operation of its own, every other in the archive."""
    ago = "UTC_TIMESTAMP(6) - INTERVAL 60 DAY + INTERVAL seq SECOND"
    with closing(connect_database(product.database.app, FILL_SECONDS_MAX)) as connection, connection.cursor() as cursor:
        for first in range(1, ROWS, ROWS_AT_ONCE):
            rows = f"FROM seq_{first}_to_{first + ROWS_AT_ONCE - 1}"
            cursor.execute(
                "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
                "payload, priority_class, relayed_at, processed_at, outcome, fate_sequence) SELECT %s, "
                "LPAD(seq, 64, 0), REPEAT('h', 32), 'unit', "
                "CONCAT('unit-', (seq * 7919) MOD 50000), 'unit_status_changed', "
                "CONCAT('{\"status\":\"', REPEAT('x', 150), '\"}'), IF(seq MOD 5 = 0, 'TXN', 'LWW'), "
                f"{ago}, {ago}, 'APPLIED', 1000000 + seq {rows}",
                (product.host,),
            )
            for table, more, value, which in (
                ("nonce_requests", "", "", 0),
                ("nonce_requests_archive", ", reason", ", 'its change was forgotten'", 1),
            ):
                cursor.execute(
                    f"INSERT INTO {table} (host, nonce, {OPERATION}{more}) SELECT %s, "
                    f"CAST(seq AS SIGNED) - {2 * ROWS}, "
                    f"1000000 + seq, LPAD(seq, 56, 0), 1, REPEAT('b', 300), 'APPLIED', 1, {ago}{value} {rows} "
                    f"WHERE seq MOD 2 = {which}",
                    (product.host,),
                )
            connection.commit()
