"""People see which workers are at work, and that one has left."""

from __future__ import annotations

import pytest

from tests.faults.product import Product

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]


def test_a_worker_is_shown_at_work_until_it_has_left(product: Product) -> None:
    def workers(left: str) -> bool:
        return len(product.sql(f"SELECT name FROM workers WHERE host = %s AND left_at IS {left}", product.host)) == 1

    worker = product.start_worker()
    product.wait_for("it is at work", lambda: workers("NULL"))
    worker.stop()
    assert workers("NOT NULL")
