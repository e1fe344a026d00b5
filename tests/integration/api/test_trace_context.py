"""The caller's trace context by HTTP: the header, or a field of the change."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy.engine import Engine

from tests.integration.change_forms import TRACEPARENT
from tests.integration.store.writing import rows

pytestmark = pytest.mark.mariadb

OTHER = "00-11111111111111111111111111111111-2222222222222222-00"
CHANGE: dict[str, Any] = {"entity_type": "unit", "entity_id": "12B", "event_type": "checked_in", "payload": {}}
HEADERS = {"traceparent": TRACEPARENT}


def kept(engine: Engine) -> list[str | None]:
    return [row["traceparent"] for row in rows(engine, "SELECT traceparent FROM outbox_events ORDER BY id")]


def test_the_header_is_kept_with_the_change(shop: httpx.Client, engine: Engine) -> None:
    assert shop.post("/api/changes", json=CHANGE, headers=HEADERS).status_code == 202
    assert kept(engine) == [TRACEPARENT]


def test_a_change_s_own_precedes_the_header(shop: httpx.Client, engine: Engine) -> None:
    changes = [{**CHANGE, "traceparent": OTHER}, CHANGE]
    assert shop.post("/api/changes/batch", json={"changes": changes}, headers=HEADERS).status_code == 202
    assert kept(engine) == [OTHER, TRACEPARENT]


def test_so_it_is_with_a_unit_s_own_routes(shop: httpx.Client, engine: Engine) -> None:
    details = {"name": "Seaview", "property_id": "seaview", "status": "Clean"}
    assert shop.put("/api/units/12B", json=details, headers=HEADERS).status_code == 202
    assert shop.post("/api/units/12B/status", json={"status": "Dirty"}, headers=HEADERS).status_code == 202
    assert kept(engine) == [TRACEPARENT] * 3


def test_what_is_not_valid_and_two_headers_are_as_none(shop: httpx.Client, engine: Engine) -> None:
    for headers in ([("traceparent", "nonsense")], [("traceparent", TRACEPARENT), ("traceparent", OTHER)]):
        assert shop.post("/api/changes", json=CHANGE, headers=headers).status_code == 202
    assert kept(engine) == [None, None]


def test_a_repetition_from_another_trace_gets_the_first_answer(shop: httpx.Client, engine: Engine) -> None:
    first, again = (
        shop.post("/api/changes", json=CHANGE, headers={"Idempotency-Key": "k-1", "traceparent": each})
        for each in (TRACEPARENT, OTHER)
    )
    assert (again.status_code, again.json()["change_id"]) == (202, first.json()["change_id"])
    assert again.headers["Idempotency-Replayed"] == "true"
    assert kept(engine) == [TRACEPARENT]


def test_a_change_that_comes_back_from_a_withdrawal_is_in_its_trace(
    shop: httpx.Client, anna: httpx.Client, engine: Engine
) -> None:
    change_id = shop.post("/api/changes", json=CHANGE, headers=HEADERS).json()["change_id"]
    asked = {"change_id": change_id, "reason": "wrong", "up_to": change_id}
    done = anna.post("/api/withdrawals", json=asked).json()
    anna.post(f"/api/withdrawals/{done['withdrawal_id']}/undo", json={"reason": "it was right"}).raise_for_status()
    assert kept(engine) == [TRACEPARENT, TRACEPARENT]
