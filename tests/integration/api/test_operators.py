"""What operators see and do, and what they are told when the writer can't be reached or says no."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.writer_link import writer_away
from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.store.alerts import close_alert, list_alerts, raise_alert
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.read import host_condition
from tests.integration.api.conftest import HOST, TOKENS, ScriptedWriter, a_client, served
from tests.integration.api.test_fates import end, make

WHY = {"reason": "because"}


def test_status_joins_the_workflow_and_the_books(anna: httpx.Client, shop: httpx.Client, engine: Engine) -> None:
    make(shop, "a")
    end(engine, make(shop, "b"), "APPLIED")
    status = anna.get("/api/writer/status").json()
    assert (status["reachable"], status["workflow"], status["note"]) == (True, {"breaker": {"state": "CLOSED"}}, None)
    books = status["books"]
    assert (books["accepted"], books["waiting"], books["applied"]) == (2, 1, 1)
    assert status["oldest_waiting_at"] is not None


def test_slow_books_are_counted_less_often(
    database_url: str, engine: Engine, writer: ScriptedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    counted: list[float] = []

    def slow_books(connection: Connection, host: str) -> dict[str, Any]:
        counted.append(now[0])
        now[0] += 1.5
        return books_of(connection, host)

    books_of = host_condition.read_status
    monkeypatch.setattr(host_condition, "read_status", slow_books)
    app = create_app(Dependencies(HOST, TOKENS, Database(connect_for_api(database_url)), writer, clock=lambda: now[0]))
    with served(app) as address, a_client(address, "anna") as client:
        for asked_at in (0.0, 2.0, 31.0, 32.0, 34.0):
            now[0] = asked_at
            assert client.get("/api/writer/status").status_code == 200
    assert counted == [0.0, 32.0]


def test_status_without_temporal_tells_what_the_database_knows(anna: httpx.Client, writer: ScriptedWriter) -> None:
    writer.problem = writer_away("Temporal does not answer")
    status = anna.get("/api/writer/status").json()
    assert (status["reachable"], status["workflow"]) == (False, None)
    assert status["note"].startswith("Temporal does not answer.")
    assert status["books"]["accepted"] == 0


@pytest.mark.parametrize(
    ("action", "more"),
    [
        ("pause", {}),
        ("pause", {"for_seconds": 2400}),
        ("resume", {}),
        ("flush", {"entity_type": "unit", "entity_id": "12B"}),
        ("resolve", {"mode": "resend"}),
    ],
)
def test_an_act_carries_the_token_s_name_and_the_reason(
    anna: httpx.Client, writer: ScriptedWriter, action: str, more: dict[str, Any]
) -> None:
    answer = anna.post(f"/api/writer/{action}", json=WHY | more)
    assert answer.json() == {"action": action, "operator": "anna", "message": f"{action}: done"}
    ((name, request),) = writer.acts
    assert (name, request.operator, request.reason) == (action, "anna", "because")
    assert {field: getattr(request, field) for field in more} == more


def test_nobody_acts_in_another_s_name_or_without_a_reason(anna: httpx.Client, writer: ScriptedWriter) -> None:
    assert anna.post("/api/writer/pause", json=WHY | {"operator": "bob"}).status_code == 422
    assert anna.post("/api/writer/pause", json={"reason": ""}).status_code == 422
    assert anna.post("/api/writer/pause", json=WHY | {"for_seconds": -1}).status_code == 422
    assert anna.post("/api/writer/resolve", json=WHY | {"mode": "guess"}).status_code == 422
    assert writer.acts == []


def test_an_act_the_writer_refuses_is_a_409_with_its_reason(anna: httpx.Client, writer: ScriptedWriter) -> None:
    writer.problem = Problem(409, "refused", "The writer refused to resume", "It is not paused.", "See the status.")
    answer = anna.post("/api/writer/resume", json=WHY)
    assert (answer.status_code, answer.json()["detail"]) == (409, "It is not paused.")


def test_an_act_without_temporal_is_a_503(anna: httpx.Client, writer: ScriptedWriter) -> None:
    writer.problem = writer_away("Temporal does not answer")
    assert anna.post("/api/writer/pause", json=WHY).status_code == 503


def test_dead_letters_say_what_they_hold_up(anna: httpx.Client, shop: httpx.Client, engine: Engine) -> None:
    rejected = make(shop, "a", "checked_in")
    end(engine, rejected, "DEAD", error="no such guest")
    make(shop, "b", "checked_out")
    make(shop, "c", "unit_status_changed")
    (letter,) = anna.get("/api/dead-letters").json()["dead_letters"]
    assert (letter["change_id"], letter["error"], letter["held"]) == (rejected, "no such guest", 1)


def test_dead_letters_are_listed_page_by_page(anna: httpx.Client, shop: httpx.Client, engine: Engine) -> None:
    ids = [make(shop, key, "checked_in") for key in "abc"]
    for change_id in ids:
        end(engine, change_id, "DEAD")
    first = anna.get("/api/dead-letters", params={"limit": 2}).json()
    second = anna.get("/api/dead-letters", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [letter["change_id"] for letter in first["dead_letters"] + second["dead_letters"]] == ids
    assert second["next_cursor"] is None


@pytest.mark.parametrize("action", ["retry", "discard", "confirm"])
def test_a_dead_letter_is_decided_by_its_id(
    anna: httpx.Client, shop: httpx.Client, engine: Engine, writer: ScriptedWriter, action: str
) -> None:
    change_id = make(shop, "a", "checked_in")
    assert anna.post(f"/api/dead-letters/{change_id}/{action}", json=WHY).status_code == 409
    end(engine, change_id, "DEAD")
    assert anna.post(f"/api/dead-letters/{change_id}/{action}", json=WHY).status_code == 200
    assert [(name, request.change_id) for name, request in writer.acts] == [(action, change_id)]
    assert anna.post(f"/api/dead-letters/{change_id + 1}/{action}", json=WHY).status_code == 404


def test_the_writer_is_asked_where_things_are(vera: httpx.Client) -> None:
    found = vera.get("/api/writer/find", params={"entity_id": "12B"}).json()
    assert found == {"entity_type": "unit", "entity_id": "12B", "workflow": {"asked": ["unit", "12B"]}}
    assert vera.get("/api/writer/upcoming", params={"count": 7}).json() == {"upcoming": [[7]]}


def test_alerts_are_shown_while_they_are_open(vera: httpx.Client, engine: Engine) -> None:
    with engine.begin() as connection:
        raise_alert(connection, host="oldhost", kind="ban", severity="critical", message="banned", dedupe_key="ban")
    (alert,) = vera.get("/api/alerts").json()["alerts"]
    assert (alert["kind"], alert["severity"], alert["closed_at"]) == ("ban", "critical", None)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alerts SET is_open = NULL, closed_at = UTC_TIMESTAMP(6)"))
    assert vera.get("/api/alerts").json()["alerts"] == []
    assert len(vera.get("/api/alerts", params={"open": False}).json()["alerts"]) == 1


def alert_of(engine: Engine, kind: str) -> int:
    with engine.begin() as connection:
        raise_alert(connection, HOST, kind, "warning", "look")
        return list_alerts(connection, HOST)[0].alert_id


def test_alerts_are_filtered_by_state_and_kind(vera: httpx.Client, engine: Engine) -> None:
    for kind in ("ban", "strays", "no-worker"):
        alert_of(engine, kind)
    with engine.begin() as connection:
        close_alert(connection, HOST, "ban")

    def kinds(**which: str) -> list[str]:
        return [alert["kind"] for alert in vera.get("/api/alerts", params=which).json()["alerts"]]

    assert kinds(state="closed") == ["ban"]
    assert kinds(state="all", kind="strays") == ["strays"]
    assert kinds(kind="ban") == []
    assert vera.get("/api/alerts", params={"state": "perhaps"}).status_code == 422


def test_an_alert_is_acknowledged_and_closed_by_name_with_a_reason(anna: httpx.Client, engine: Engine) -> None:
    number = alert_of(engine, "strays")
    seen = anna.post(f"/api/alerts/{number}/acknowledge", json=WHY).json()
    assert (seen["acknowledged_by"], seen["acknowledge_reason"], seen["may_close"]) == ("anna", "because", True)
    closed = anna.post(f"/api/alerts/{number}/close", json=WHY).json()
    assert (closed["closed_by"], closed["close_reason"], closed["may_close"]) == ("anna", "because", False)
    assert anna.post(f"/api/alerts/{number}/close", json=WHY).status_code == 409
    acts = anna.get("/api/audit").json()["entries"]
    assert [(act["action"], act["operator"]) for act in acts] == [
        ("close-alert", "anna"),
        ("acknowledge-alert", "anna"),
    ]


def test_what_the_product_sees_to_be_true_is_not_closed_by_hand(anna: httpx.Client, engine: Engine) -> None:
    number = alert_of(engine, "no-worker")
    answer = anna.post(f"/api/alerts/{number}/close", json=WHY)
    assert answer.status_code == 409
    assert "the product closes alerts of this kind itself" in answer.json()["detail"]
    assert answer.json()["action"] == "See docs/operations.md#alert-no-worker."
    assert len(anna.get("/api/alerts").json()["alerts"]) == 1


@pytest.mark.parametrize("action", ["acknowledge", "close"])
def test_an_alert_that_is_not_there_is_a_404(anna: httpx.Client, action: str) -> None:
    assert anna.post(f"/api/alerts/7/{action}", json=WHY).status_code == 404
    assert anna.post(f"/api/alerts/7/{action}", json={"reason": ""}).status_code == 422


def test_the_audit_says_who_and_why(anna: httpx.Client, engine: Engine) -> None:
    with engine.begin() as connection:
        for number in range(3):
            record_act(
                connection,
                host="oldhost",
                action="pause",
                operator=at_the_terminal("anna"),
                reason=f"r{number}",
                detail={"n": 1},
            )
    first = anna.get("/api/audit", params={"limit": 2}).json()
    second = anna.get("/api/audit", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [entry["reason"] for entry in first["entries"] + second["entries"]] == ["r2", "r1", "r0"]


def test_figures_name_routes_and_never_units(vera: httpx.Client, shop: httpx.Client) -> None:
    shop.post("/api/units/secret-unit/status", json={"status": "Clean"})
    figures = vera.get("/metrics").text
    assert (
        'oldhost_sync_api_requests_total{method="POST",route="/api/units/{unit_id:path}/status",status="202"} 1.0'
        in figures
    )
    assert "secret-unit" not in figures
    assert all(line.startswith(("#", "oldhost_sync_")) for line in figures.splitlines())


@pytest.mark.parametrize("number", ["7", "", True, 7.5, [7], {}, 2**63])
def test_a_number_in_an_operator_s_body_is_a_number(anna: httpx.Client, writer: ScriptedWriter, number: object) -> None:
    for path, body in (
        ("/api/writer/resolve", {"mode": "adopt", "epoch": number}),
        ("/api/dead-letters/retry", {"change_ids": [number]}),
        ("/api/dead-letters/retry", {"group": "no such guest", "up_to": number}),
    ):
        answer = anna.post(path, json=WHY | body)
        assert answer.status_code == 422, (path, answer.text)
    assert not writer.acts
