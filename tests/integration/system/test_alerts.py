"""Alerts reach the webhook whichever role is gone, also when what they tell of is that a role or Temporal is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from oldhost_sync.stack.machine import free_port
from oldhost_sync.stack.mariadb import DatabaseUrls
from tests.faults.product import Product
from tests.integration.activities.webhook import Webhook
from tests.integration.system.changes import record

pytestmark = [pytest.mark.mariadb, pytest.mark.processes, pytest.mark.slow]


def test_a_relay_posts_what_is_wrong_while_no_worker_runs_and_temporal_is_away(
    tmp_path: Path, database: DatabaseUrls, webhook: Webhook
) -> None:
    with Product(tmp_path, database, f"127.0.0.1:{free_port()}") as product:
        product.start("relay", alert_webhook_url=webhook.url)
        record(product, 1, "guest_locked_out")
        product.wait_for("both alerts", lambda: len(product.open_alerts()) == 2)
        told = {webhook.came.get(timeout=30)["kind"] for _ in range(2)}
        assert told == {"temporal-away", "emergency-late"}
