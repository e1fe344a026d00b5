"""A whole product posts its fates to a webhook of its file, and tells of one that does not accept them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from tests.faults.product import Product
from tests.integration.activities.webhook import Webhook

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_a_relay_posts_fates_and_tells_of_a_webhook_that_is_gone(
    tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal, webhook: Webhook
) -> None:
    (tmp_path / "shop.secret").write_text(SECRET)
    file = tmp_path / "webhooks.toml"
    file.write_text(f'[webhooks.shop]\nurl = "{webhook.url}"\nsecret_file = "shop.secret"\n')
    with Product(tmp_path, database, temporal.address, given={"webhooks_file": file}) as product:
        product.start_simulator()
        product.start("relay")
        product.start_worker()
        product.start_api()
        change: dict[str, Any] = {"entity_type": "unit", "event_type": "booking_created", "payload": {"guest": "Ada"}}
        assert product.api.call("POST", "/api/changes", change | {"entity_id": "12B"})[0] == 202
        told = webhook.came.get(timeout=60)
        assert (told["type"], told["data"]["entity_id"]) == ("change.applied", "12B")
        assert "Ada" not in str(told)
        webhook.answer = lambda _: 410
        assert product.api.call("POST", "/api/changes", change | {"entity_id": "12C"})[0] == 202
        product.wait_for("the alert", lambda: "webhook-late" in str(product.open_alerts()))
        product.check_clean()
