"""Changes wait, and no relay runs: a worker tells people. Apart from the other silences, since it waits for long."""

from __future__ import annotations

import pytest

from oldhost_sync.worker.watch import RELAYS_POLL_SECONDS
from tests.faults.product import Product
from tests.integration.system.changes import record

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]


def test_without_a_relay_people_are_told_by_a_worker(product: Product) -> None:
    record(product, 2)
    product.start_worker()
    product.wait_for("the missing relay", lambda: "no-relay" in product.open_alerts(), RELAYS_POLL_SECONDS + 25)
    product.start("relay")
    product.wait_for("all fates", lambda: product.all_have_fates(2), 30)
    product.check_clean()
