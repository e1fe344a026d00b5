"""Level L3: another program holds an entity's rows while an operation of it is in flight; nobody
else's operations wait (I10)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from oldhost_sync.policy import limits
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.faults.foreign_locks import LOCKED, ForeignLock
from tests.faults.product import Product

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

EMERGENCIES = 3


@pytest.fixture
def product(tmp_path: Path, database: DatabaseUrls, temporal_dev_server: EmbeddedTemporal) -> Iterator[Product]:
    given = {"host": f"locks-{time.time_ns()}"}
    with Product(tmp_path, database, temporal_dev_server.address, latency_ms=400, given=given) as product:
        product.start_all()
        yield product


@pytest.mark.timeout(180)
def test_rows_that_another_program_holds_delay_nobody_elses_emergencies(
    product: Product, mariadb_server: PrivateMariaDB
) -> None:
    """For each table in turn: all emergencies are applied while the rows are held, and no transaction waits for them
    as long as a lock may be waited for at all.
    """
    product.api.change("B1", "booking_created", {"n": 0}, entity_type="booking")
    product.wait_for("the first operation", lambda: product.all_have_fates(1))
    waited: dict[str, int] = {}
    for table in LOCKED:
        entity_type = "booking" if table == "entities" else "unit"
        held = f"held-{table}"
        product.fault("slow", next=1, extra_ms=1500)
        change_id = product.api.change(held, "booking_created", {"n": 1}, entity_type=entity_type)
        product.wait_for("it to be in flight", partial(_is_in_flight, product, change_id))
        before = mariadb_server.row_lock("time")
        with ForeignLock(product.database.app, table, held) as lock:
            assert lock.rows
            for number in range(EMERGENCIES):
                emergency = product.api.change(f"free-{table}-{number}", "guest_locked_out", {"n": number})
                product.wait_for("an emergency to be applied", partial(_is_applied, product, emergency), 60)
            waited[table] = mariadb_server.row_lock("time") - before
        product.wait_for("its own fate", partial(_is_applied, product, change_id))
    assert {table: ms for table, ms in waited.items() if ms >= 1000 * limits.LOCK_WAIT_SECONDS_MAX} == {}
    product.check_clean()


def _is_in_flight(product: Product, change_id: int) -> bool:
    return any(row["change_id"] == change_id for row in product.requests("SENT"))


def _is_applied(product: Product, change_id: int) -> bool:
    return product.fates()[change_id] == "APPLIED"
