"""A change belongs to the token that made it: other applications neither see nor cancel it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.store.intake.change_recorder import record_change
from tests.integration.api.conftest import HOST

CHANGE: dict[str, Any] = {
    "entity_type": "unit",
    "entity_id": "12B",
    "event_type": "door_code_changed",
    "payload": {"door_code": "4711"},
}
LATER_TIME = datetime.now(UTC) + timedelta(days=30)
LATER = {**CHANGE, "not_before": LATER_TIME.isoformat()}


def make(client: httpx.Client, key: str, change: dict[str, Any] = LATER) -> dict[str, Any]:
    answer = client.post("/api/changes", json=change, headers={"Idempotency-Key": key})
    assert answer.status_code == 202
    made: dict[str, Any] = answer.json()
    return made


def cancellations(engine: Engine) -> list[tuple[str, str]]:
    with engine.connect() as connection:
        query = "SELECT operator, JSON_VALUE(detail, '$.idempotency_key') FROM operator_audit WHERE action = :action"
        return [tuple(row) for row in connection.execute(text(query), {"action": "cancel-scheduled"})]


def recorded_without_a_token(engine: Engine, key: str, not_before: Any = None) -> None:
    with engine.begin() as connection:
        record_change(connection, host=HOST, idempotency_key=key, not_before=not_before, **CHANGE)


def test_another_application_s_scheduled_change_is_not_found(shop: httpx.Client, kiosk: httpx.Client) -> None:
    make(shop, "k")
    for ask in (kiosk.get, kiosk.delete):
        answer, unknown = ask("/api/changes/k"), ask("/api/changes/nobody-s")
        assert answer.status_code == 404
        assert answer.json() == unknown.json()
    assert shop.get("/api/changes/k").json()["state"] == "SCHEDULED"


def test_another_application_s_recorded_change_is_not_found(shop: httpx.Client, kiosk: httpx.Client) -> None:
    change_id = make(shop, "k", CHANGE)["change_id"]
    for path in ("/api/changes/k", f"/api/outbox/{change_id}"):
        assert kiosk.get(path).status_code == 404
        assert shop.get(path).status_code == 200
    assert kiosk.delete("/api/changes/k").status_code == 404


def test_viewers_and_operators_see_every_application_s_changes(
    shop: httpx.Client, vera: httpx.Client, anna: httpx.Client
) -> None:
    make(shop, "k")
    assert vera.get("/api/changes/k").status_code == 200
    assert anna.get("/api/changes/k").status_code == 200


def test_an_application_cancels_its_own_and_an_operator_any_and_both_stand_in_the_audit(
    shop: httpx.Client, anna: httpx.Client, engine: Engine
) -> None:
    make(shop, "mine")
    make(shop, "other")
    assert shop.delete("/api/changes/mine").status_code == 200
    assert anna.delete("/api/changes/other").status_code == 200
    assert anna.delete("/api/changes/other").status_code == 200
    assert cancellations(engine) == [("shop", "mine"), ("anna", "other")]


def test_a_change_that_no_token_made_is_seen_by_its_key_and_cancelled_by_operators_only(
    shop: httpx.Client, anna: httpx.Client, engine: Engine
) -> None:
    recorded_without_a_token(engine, "python-s", not_before=LATER_TIME)
    assert shop.get("/api/changes/python-s").status_code == 200
    refused = shop.delete("/api/changes/python-s")
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (403, "not-yours")
    assert anna.delete("/api/changes/python-s").status_code == 200


def test_the_feed_has_no_fate_of_another_application_s_change(
    shop: httpx.Client, kiosk: httpx.Client, vera: httpx.Client, engine: Engine
) -> None:
    for client, key in ((shop, "shop-s"), (kiosk, "kiosk-s")):
        make(client, key, CHANGE)
    recorded_without_a_token(engine, "python-s")
    with engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE outbox_events SET outcome = 'APPLIED', processed_at = UTC_TIMESTAMP(6), fate_sequence = id "
                "WHERE outcome IS NULL"
            )
        )
    seen = {name: feed(client) for name, client in (("shop", shop), ("kiosk", kiosk), ("vera", vera))}
    assert seen == {
        "shop": ["shop-s", "python-s"],
        "kiosk": ["kiosk-s", "python-s"],
        "vera": ["shop-s", "kiosk-s", "python-s"],
    }


def feed(client: httpx.Client) -> list[str]:
    """All keys, one fate a page."""
    found: list[str] = []
    cursor, more = "f0.0.0", True
    while more:
        page = client.get("/api/changes", params={"since": cursor, "limit": 1}).json()
        found += [each["idempotency_key"] for each in page["changes"]]
        cursor, more = page["next_cursor"], page["more"]
    return found


def test_a_probe_of_another_s_key_learns_only_that_it_is_taken(shop: httpx.Client, kiosk: httpx.Client) -> None:
    make(shop, "k")
    probe = kiosk.post("/api/changes", json=LATER | {"entity_id": "9"}, headers={"Idempotency-Key": "k"})
    assert probe.status_code == 422
    assert probe.json()["type"].rpartition(":")[2] == "idempotency-key-reused"
    for secret in ("shop", "12B", "4711", LATER["not_before"][:10]):
        assert secret not in probe.text
