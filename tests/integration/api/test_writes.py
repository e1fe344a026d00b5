"""Writes: durable before they are answered, once per key, two changes or none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.policy.forecast.outlook import LaneOutlook, Outlook
from tests.integration.api.conftest import ScriptedWriter, a_client

DOOR_CODE = {
    "entity_type": "unit",
    "entity_id": "12B",
    "event_type": "door_code_changed",
    "payload": {"door_code": "4711"},
}


def rows(engine: Engine, query: str, **values: Any) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(query), values))


def count_changes(engine: Engine) -> int:
    return int(rows(engine, "SELECT COUNT(*) FROM outbox_events")[0][0])


def test_a_status_is_answered_at_once_with_pending_sync(shop: httpx.Client, engine: Engine) -> None:
    answer = shop.post("/api/units/12B/status", json={"status": "Clean"})
    assert answer.status_code == 202
    body = answer.json()
    assert body["sync_status"] == "PENDING_SYNC"
    (row,) = rows(engine, "SELECT id, idempotency_key, event_type, priority_class, source FROM outbox_events")
    assert row == (body["change_id"], body["idempotency_key"], "unit_status_changed", "LWW", "api:shop")


def test_the_unit_shows_what_was_just_accepted(shop: httpx.Client) -> None:
    change_id = shop.post("/api/units/12B/status", json={"status": "Clean"}).json()["change_id"]
    unit = shop.get("/api/units/12B").json()
    assert (unit["status"], unit["sync_status"], unit["newest_change_id"]) == ("Clean", "PENDING_SYNC", change_id)


def test_the_same_key_and_body_give_the_first_answer(shop: httpx.Client, engine: Engine) -> None:
    first = shop.post("/api/units/12B/status", json={"status": "Clean"}, headers={"Idempotency-Key": "k"})
    again = shop.post("/api/units/12B/status", json={"status": "Clean"}, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.content) == (202, first.content)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert count_changes(engine) == 1


def test_the_same_key_with_another_body_is_refused(shop: httpx.Client, engine: Engine) -> None:
    shop.post("/api/units/12B/status", json={"status": "Clean"}, headers={"Idempotency-Key": "k"})
    other = shop.post("/api/units/12B/status", json={"status": "Dirty"}, headers={"Idempotency-Key": "k"})
    assert other.status_code == 422
    assert other.json()["type"].endswith("idempotency-key-reused")
    assert shop.get("/api/units/12B").json()["status"] == "Clean"
    assert count_changes(engine) == 1


def test_one_key_from_many_at_once_is_one_change_and_one_answer(address: str, engine: Engine) -> None:
    """Same body: all get the first answer. Another body among them: the one that came first
    decides, the other is a 422."""
    bodies = [{"status": "Clean"}] * 6 + [{"status": "Dirty"}] * 2

    def post(body: dict[str, str]) -> httpx.Response:
        with a_client(address, "shop") as client:
            return client.post("/api/units/12B/status", json=body, headers={"Idempotency-Key": "k"})

    with ThreadPoolExecutor(len(bodies)) as threads:
        answers = list(threads.map(post, bodies))
    assert count_changes(engine) == 1
    (recorded,) = rows(engine, "SELECT JSON_VALUE(payload, '$.status') AS status FROM outbox_events")
    for body, answer in zip(bodies, answers, strict=True):
        assert answer.status_code == (202 if body["status"] == recorded.status else 422)
    accepted = [answer for answer in answers if answer.status_code == 202]
    assert len({answer.content for answer in accepted}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in accepted) == 1


def test_a_unit_with_a_status_makes_two_changes(shop: httpx.Client, engine: Engine) -> None:
    answer = shop.put("/api/units/12B", json={"name": "Seaview 12", "property_id": "seaview", "status": "Clean"})
    assert answer.status_code == 202
    body = answer.json()
    assert [change["change_id"] for change in body["changes"]] == [
        row.id for row in rows(engine, "SELECT id FROM outbox_events ORDER BY id")
    ]
    assert body["change_id"] == body["changes"][0]["change_id"]
    unit = shop.get("/api/units/12B").json()
    assert (unit["name"], unit["property_id"], unit["status"]) == ("Seaview 12", "seaview", "Clean")


@pytest.mark.parametrize(
    ("first", "second"),
    [({"name": "x", "status": "Clean"}, {"name": "x"}), ({"name": "x"}, {"name": "x", "status": "Clean"})],
)
def test_a_unit_s_key_belongs_to_the_whole_body(
    shop: httpx.Client, engine: Engine, first: dict[str, str], second: dict[str, str]
) -> None:
    accepted = shop.put("/api/units/12B", json=first, headers={"Idempotency-Key": "k"})
    again = shop.put("/api/units/12B", json=first, headers={"Idempotency-Key": "k"})
    assert again.content == accepted.content
    before = count_changes(engine)
    other = shop.put("/api/units/12B", json=second, headers={"Idempotency-Key": "k"})
    assert (other.status_code, count_changes(engine)) == (422, before)


def test_a_unit_is_recorded_with_its_status_or_not_at_all(shop: httpx.Client, engine: Engine) -> None:
    shop.post("/api/units/9/status", json={"status": "Clean"}, headers={"Idempotency-Key": "k:status"})
    answer = shop.put("/api/units/12B", json={"name": "x", "status": "Dirty"}, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 422
    assert count_changes(engine) == 1
    assert shop.get("/api/units/12B").status_code == 404


def test_the_answer_says_when_oldhost_is_expected_to_have_it_and_a_repetition_does_not(
    shop: httpx.Client, writer: ScriptedWriter
) -> None:
    lane = LaneOutlook()
    writer.outlook = Outlook(400.0, 0, 0, 0, 0, 1.0, 120_000, 0, lane, lane).to_json()
    one = DOOR_CODE | {"idempotency_key": "k"}
    first, again = shop.post("/api/changes", json=one), shop.post("/api/changes", json=one)
    batch = shop.post("/api/changes/batch", json={"changes": [one, DOOR_CODE | {"idempotency_key": "l"}]})
    unit = shop.put("/api/units/12B", json={"name": "x", "status": "Dirty"})
    assert first.json()["keeps_promise"] is True
    assert again.json() == first.json() | {"expected_at": None, "keeps_promise": None}
    assert [each["keeps_promise"] for each in batch.json()["results"]] == [None, True]
    assert [each["keeps_promise"] for each in unit.json()["changes"]] == [True, True]
    accepted_at = shop.get("/api/changes/k").json()["accepted_at"]
    took = datetime.fromisoformat(first.json()["expected_at"]) - datetime.fromisoformat(accepted_at)
    assert took == pytest.approx(timedelta(seconds=1), abs=timedelta(milliseconds=1))


def test_ids_and_keys_may_hold_a_slash(shop: httpx.Client) -> None:
    assert shop.post("/api/units/a%2Fb%20c/status", json={"status": "Clean"}).status_code == 202
    assert shop.get("/api/units/a%2Fb%20c").json()["id"] == "a/b c"
    shop.post("/api/changes", json=DOOR_CODE, headers={"Idempotency-Key": "orders/7"})
    assert shop.get("/api/changes/orders/7").json()["idempotency_key"] == "orders/7"


def test_the_server_decides_the_class(shop: httpx.Client, engine: Engine) -> None:
    for event_type in ("guest_locked_out", "door_code_changed", "rate_changed", "never_heard_of"):
        assert shop.post("/api/changes", json=DOOR_CODE | {"event_type": event_type}).status_code == 202
    assert shop.post("/api/changes", json=DOOR_CODE | {"priority_class": "EMERGENCY"}).status_code == 422
    found = rows(engine, "SELECT priority_class FROM outbox_events ORDER BY id")
    assert [row.priority_class for row in found] == ["EMERGENCY", "TXN", "LWW", "TXN"]


def test_a_change_for_later_is_kept_and_can_be_cancelled(shop: httpx.Client, engine: Engine) -> None:
    later = DOOR_CODE | {"not_before": "2027-12-24T14:00:00+01:00"}
    answer = shop.post("/api/changes", json=later, headers={"Idempotency-Key": "k"})
    first = {"sync_status": "SCHEDULED", "change_id": None, "idempotency_key": "k"}
    assert answer.json() == {**first, "expected_at": None, "keeps_promise": None}
    assert shop.post("/api/changes", json=later, headers={"Idempotency-Key": "k"}).content == answer.content
    assert count_changes(engine) == 0
    assert shop.get("/api/units/12B").status_code == 404
    cancelled = shop.delete("/api/changes/k")
    assert cancelled.status_code == 200
    assert shop.delete("/api/changes/k").json() == cancelled.json()
    assert shop.get("/api/changes/k").json()["state"] == "CANCELLED"


def test_a_recorded_change_can_not_be_cancelled(shop: httpx.Client) -> None:
    shop.post("/api/changes", json=DOOR_CODE, headers={"Idempotency-Key": "k"})
    answer = shop.delete("/api/changes/k")
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("already-recorded")
    assert shop.delete("/api/changes/other").status_code == 404


def test_a_scheduled_change_keeps_its_first_answer_after_it_was_recorded(shop: httpx.Client, engine: Engine) -> None:
    from oldhost_sync.store.intake.schedule import due, record_due
    from oldhost_sync.store.transactions import run_in_transaction

    later = DOOR_CODE | {"not_before": "2027-12-24T14:00:00Z"}
    first = shop.post("/api/changes", json=later, headers={"Idempotency-Key": "k"})
    with engine.begin() as connection:
        connection.execute(text("UPDATE scheduled_changes SET not_before = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"))
    (planned,) = run_in_transaction(engine, lambda connection: due(connection, "oldhost", 10))
    run_in_transaction(engine, lambda connection: record_due(connection, planned))
    assert shop.post("/api/changes", json=later, headers={"Idempotency-Key": "k"}).content == first.content
    assert shop.get("/api/changes/k").json()["state"] == "WAITING"
    assert count_changes(engine) == 1


def test_units_are_listed_page_by_page(shop: httpx.Client) -> None:
    for unit in ("a", "B", "c", "ü", "日本"):
        shop.post(f"/api/units/{unit}/status", json={"status": "Clean"})
    seen: list[str] = []
    params = {"limit": "2", "sync_status": "PENDING_SYNC"}
    for _ in range(3):
        page = shop.get("/api/units", params=params).json()
        seen += [unit["id"] for unit in page["units"]]
        params["cursor"] = page["next_cursor"]
    assert page["next_cursor"] is None
    assert seen == ["B", "a", "c", "ü", "日本"]
    assert shop.get("/api/units", params={"sync_status": "SYNCED"}).json()["units"] == []
