"""While something is outstanding and nothing happens, people are told in time, whatever the cause,
and told when it is over."""

from __future__ import annotations

import pytest

from tests.faults.product import Product
from tests.integration.system.changes import record

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]


def test_without_a_worker_people_are_told_within_30_s_and_of_late_emergencies_before_the_promise_breaks(
    product: Product,
) -> None:
    product.start("relay")
    record(product, 2, "guest_locked_out", entity="emergency-")
    product.wait_for("the warning", lambda: "emergency-late" in product.open_alerts(), 25)
    product.wait_for("the missing worker", lambda: "no-worker" in product.open_alerts(), 15)
    product.start_worker()
    product.wait_for("all fates", lambda: product.all_have_fates(2), 30)
    product.wait_for("the worker is no longer missed", lambda: "no-worker" not in product.open_alerts(), 30)
    product.check_clean()


def test_without_oldhost_people_are_told_of_late_emergencies(product: Product) -> None:
    product.start("relay")
    product.start_worker()
    record(product, 1)
    product.wait_for("work under way", lambda: product.all_have_fates(1), 30)
    product.children["simulator"].kill()
    record(product, 1, "guest_locked_out", entity="emergency-")
    product.wait_for("the warning", lambda: "emergency-late" in product.open_alerts(), 40)
