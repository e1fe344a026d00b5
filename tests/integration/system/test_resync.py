"""A resync against the whole product: OldHost gets what it should have already once more."""

from __future__ import annotations

import json

import pytest

from oldhost_sync.temporal.nightly_resync import handle_of
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


def test_every_night_a_schedule_in_temporal_asks_for_a_resync_of_everything(product: Product) -> None:
    product.start("relay")
    product.start_worker()
    product.start_api()
    product.api.change("B-1", "unit_status_changed", {"status": "Clean"}, key="clean")
    product.wait_for("its fate", lambda: None not in product.fates().values())
    assert "No nightly resync is set" in oldhost_sync(product, "resync-nightly")
    oldhost_sync(product, "resync-nightly", "02:15")
    assert "Every night at 03:30 UTC" in oldhost_sync(product, "resync-nightly", "03:30")

    product.ask(lambda client: handle_of(client, product.host).trigger())
    product.wait_for("the state to be sent again", lambda: len(product.applied()) == 2)
    product.wait_for("its fate", lambda: None not in product.fates().values())
    (shown,) = json.loads(oldhost_sync(product, "resyncs", "--json"))
    assert (shown["operator"], shown["property_id"], shown["results"]) == ("nightly-resync", None, {"APPLIED": 1})

    assert "No nightly resync is set" in oldhost_sync(product, "resync-nightly", "off")
    assert "No nightly resync is set" in oldhost_sync(product, "resync-nightly")
    product.check_clean()
