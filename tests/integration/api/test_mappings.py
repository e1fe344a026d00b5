"""The HTTP doors refuse with 422 what the host's mapping can't send, and tell by which mapping a change was sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy.engine import Engine

from tests.conformance.mappings import SHORT, install
from tests.integration.api.test_batches import change, kinds, post, statuses
from tests.integration.api.test_writes import DOOR_CODE, count_changes

WHY = "payload.status is missing: mapping short/1 needs /payload/status for event type door_code_changed"
GOOD = {"payload": {"status": "Clean"}}


@pytest.fixture(autouse=True)
def _short(engine: Engine) -> None:
    install(engine, SHORT)


def told(answer: httpx.Response) -> tuple[int, bool]:
    return answer.status_code, WHY in answer.text


def test_one_change_is_refused_with_the_field_and_no_value(shop: httpx.Client, engine: Engine) -> None:
    answer = shop.post("/api/changes", json=DOOR_CODE)
    assert told(answer) == (422, True)
    assert "4711" not in answer.text
    assert shop.post("/api/changes", json=DOOR_CODE | GOOD).status_code == 202
    assert count_changes(engine) == 1


def test_a_units_details_are_refused_where_the_mapping_needs_a_status(shop: httpx.Client) -> None:
    assert shop.put("/api/units/12B", json={"name": "Sea"}).status_code == 422
    assert shop.post("/api/units/12B/status", json={"status": "Clean"}).status_code == 202


def test_requests_that_share_a_transaction_are_refused_one_by_one(shop: httpx.Client, engine: Engine) -> None:
    def ask(number: int) -> int:
        body: dict[str, Any] = DOOR_CODE | {"entity_id": f"u{number}"} | (GOOD if number % 2 else {})
        return shop.post("/api/changes", json=body).status_code

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(24))) == [422, 202] * 12
    assert count_changes(engine) == 12


def test_in_a_batch_each_is_answered_for_itself(shop: httpx.Client) -> None:
    answer = post(shop, change("1") | GOOD, change("2"), change("3") | GOOD)
    assert statuses(answer) == [202, 422, 202]
    assert kinds(answer)[1] is not None
    assert WHY in answer.text
