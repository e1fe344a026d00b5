"""A resync against the whole product: OldHost gets what it should have already once more."""

from __future__ import annotations

import json

import pytest

from tests.faults.product import Product
from tests.integration.system.commands import oldhost_sync

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]


def test_oldhost_is_sent_the_shadows_state_again_under_a_new_nonce_though_it_is_equal(product: Product) -> None:
    product.start("relay")
    product.start_worker()
    product.start_api()
    for status in ("Dirty", "Clean"):
        product.api.change("B-1", "unit_status_changed", {"status": status}, key=status)
    product.wait_for("the first state", lambda: None not in product.fates().values())
    before = len(product.applied())

    oldhost_sync(product, "resync", "--unit", "B-1", "--reason", "OldHost was repaired by hand")
    product.wait_for("it to be sent again", lambda: len(product.applied()) == before + 1)
    product.wait_for("its fate", lambda: None not in product.fates().values())
    newest = product.journal()[-1]["body"]
    assert (newest["unit_id"], newest["status"]) == ("B-1", "Clean")
    (shown,) = json.loads(oldhost_sync(product, "resyncs", "--json"))
    assert (shown["recorded"], shown["results"], shown["finished_at"] is not None) == (1, {"APPLIED": 1}, True)
    product.check_clean()
