"""What the roles log in JSON, as their processes write it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oldhost_sync.settings import LogFormat
from tests.faults.product import Product

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]


def lines(product: Product) -> list[dict[str, Any]]:
    """All of them, also what Temporal's SDK says."""
    return [json.loads(line) for line in product.logs().splitlines() if line]


def test_a_change_of_state_is_one_line_and_no_payload_is_in_any(product: Product) -> None:
    product.settings = product.settings.model_copy(update={"log_format": LogFormat.JSON})
    product.start("relay")
    product.start_worker()
    product.start_api()
    product.start_writer()
    product.api.change("u1", "booking_created", {"guest": "Ada Lovelace"})
    product.wait_for("the operation", lambda: len(product.applied()) == 1)
    product.admin("POST", "/actions/ban", {"seconds": 5})
    product.api.change("u2", "booking_created", {"guest": "Ada Lovelace"})
    product.wait_for("the ban to be logged", lambda: "BANNED" in {line.get("state") for line in lines(product)})
    (opened,) = [line for line in lines(product) if "is open" in line["message"]]
    assert (opened["host"], opened["nonce"], opened["activity"]) == (product.host, 1, "open_session")
    assert opened["workflow_id"] == f"sync-writer:{product.host}"
    assert "Lovelace" not in product.logs()
