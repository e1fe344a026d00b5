"""MariaDB goes away under the whole running stack: what was answered with a 2xx is not lost, and
nothing else was accepted."""

from __future__ import annotations

import http.client

import pytest

from oldhost_sync.stack.mariadb import EmbeddedMariaDB
from tests.faults.product import Product

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]


def test_mariadb_killed_under_the_running_stack_loses_nothing_that_was_answered(
    product: Product, mariadb_server: EmbeddedMariaDB
) -> None:
    product.start_worker()
    product.start("relay")
    product.start_api()
    accepted = [product.api.change(f"U{number}", "booking_created", {"n": number}) for number in range(30)]
    product.wait_for("work under way", lambda: len(product.applied()) >= 3)
    mariadb_server.kill()
    try:
        status, _ = product.api.call("POST", "/api/units/U1/status", {"status": "Clean"}, key="refused")
        assert status == 503
    except http.client.HTTPException as error:
        pytest.fail(f"the API answered nothing: {error!r}")
    finally:
        mariadb_server.start()
    product.wait_for("the API to accept again", lambda: _accepts(product))
    product.wait_for("all fates", lambda: product.all_have_fates(31), 60)
    product.check_clean()
    assert set(accepted) <= {change_id for _, change_id in product.applied()}


def _accepts(product: Product) -> bool:
    return product.api.call("POST", "/api/units/U1/status", {"status": "Clean"}, key="refused")[0] == 202
