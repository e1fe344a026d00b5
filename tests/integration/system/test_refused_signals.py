"""Temporal answers, and takes no signals: nothing reaches the writer, and people are told."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import writer_handle
from tests.faults.product import Product
from tests.integration.system.changes import record

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

SIGNALS_MAX = 3
OPTIONS = ("--dynamic-config-value", f"history.maximumSignalsPerExecution={SIGNALS_MAX}")


def test_people_are_told_that_temporal_takes_no_signals(tmp_path: Path, database: DatabaseUrls) -> None:
    with EmbeddedTemporal(None, options=OPTIONS) as temporal, Product(tmp_path, database, temporal.address) as product:
        product.start_simulator()
        product.start("relay")
        product.start_worker()
        for count in range(1, SIGNALS_MAX + 1):
            record(product, 1, "guest_locked_out")
            product.wait_for("its fate", partial(product.all_have_fates, count))
        record(product, 1, "guest_locked_out")
        product.wait_for("the alert", lambda: "relay-failing" in product.open_alerts())
        (alert,) = product.sql("SELECT message FROM alerts WHERE kind = 'relay-failing'")
        assert "exceeded workflow execution limit for signal events" in alert["message"]
        product.ask(lambda client: writer_handle(client, product.host).terminate("as the runbook says"))
        product.wait_for("its fate", lambda: product.all_have_fates(SIGNALS_MAX + 1))
        product.wait_for("the end of the alert", lambda: "relay-failing" not in product.open_alerts())
        product.check_clean()
