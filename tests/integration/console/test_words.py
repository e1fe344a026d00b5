"""OldHost's words may repeat a payload: no viewer sees them, and no alert has them, by any path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import Engine

from oldhost_sync.api.access.auth import ROLES_KEY
from oldhost_sync.console.door import STREAM
from oldhost_sync.store.alerts import list_alerts, raise_alert
from oldhost_sync.store.dead_letter_alerts import keep_dead_letter_alerts
from oldhost_sync.store.transactions import run_in_transaction
from tests.integration.api.conftest import HOST, a_client
from tests.integration.console.test_lookups import SECRET, rejected, run_sql
from tests.unit.policy.test_plain_text import HOSTILE, is_plain

pytestmark = pytest.mark.mariadb
ECHO = f"guest '{SECRET}' has no room, code 47110815"
SEEN_AS = "guest # has no room, code #"
QUERIES = {"search": "?q=k-1", "group": f"?reason={quote(SEEN_AS)}"}


@pytest.fixture
def letter(engine: Engine) -> int:
    """A dead letter whose answer repeats what was sent."""
    change_id = rejected(engine, "k-1", error=ECHO)
    columns, now = "host, nonce, epoch, change_id, idempotency_key, body, status, answer, sent_at", "UTC_TIMESTAMP(6)"
    values = f":host, 9, 4, :id, 'k-1', '{{}}', 'FAILED', :answer, {now}, {now}"
    statement = f"INSERT INTO nonce_requests ({columns}, completed_at) VALUES ({values})"
    run_sql(engine, statement, host=HOST, id=change_id, answer=ECHO)
    run_in_transaction(engine, lambda connection: keep_dead_letter_alerts(connection, HOST))
    return change_id


def addresses(app: FastAPI, role: str, letter: int) -> Iterator[str]:
    """Every route that this role may read, about the letter where it is about one thing."""
    values = {
        "change_id": str(letter),
        "alert_id": "1",
        "idempotency_key": "k-1",
        "entity_type": "unit",
        "entity_id": "12B",
        "entity_id:path": "12B",
        "unit_id": "12B",
    }
    for route in app.routes:
        if not isinstance(route, APIRoute) or "GET" not in (route.methods or ()) or route.path == STREAM:
            continue
        if role in (route.openapi_extra or {})[ROLES_KEY]:
            path = re.sub(r"{([^}]*)}", lambda found: values.get(found[1], "x"), route.path)
            yield path + QUERIES.get(path.rpartition("/")[2], "")


def test_a_viewer_sees_it_nowhere_and_an_operator_does(
    app: FastAPI, address: str, vera: httpx.Client, anna: httpx.Client, letter: int
) -> None:
    seen_by_operators = 0
    with a_client(address, "vera") as of_vera, a_client(address, "anna") as of_anna:
        for path in addresses(app, "viewer", letter):
            viewer, operator = (vera, anna) if path.startswith("/console") else (of_vera, of_anna)
            shown = viewer.get(path).text
            assert SECRET not in shown, path
            assert "47110815" not in shown, path
            seen_by_operators += SECRET in operator.get(path).text
        assert of_vera.get(f"/api/outbox/{letter}").json()["error"] == SEEN_AS
    assert seen_by_operators >= 6, "the routes were asked about the letter"


def test_a_viewer_can_t_search_in_it(address: str, vera: httpx.Client, anna: httpx.Client, letter: int) -> None:
    with a_client(address, "vera") as of_vera, a_client(address, "anna") as of_anna:
        assert of_vera.get("/api/outbox", params={"answer": SECRET}).status_code == 403
        found = of_anna.get("/api/outbox", params={"answer": SECRET}).json()["changes"]
        assert [each["change_id"] for each in found] == [letter]
    assert vera.get("/console/changes", params={"answer": SECRET}).status_code == 403
    assert anna.get("/console/changes", params={"answer": SECRET}).status_code == 200


@pytest.mark.usefixtures("letter")
def test_an_alert_has_no_part_of_it(engine: Engine) -> None:
    with engine.connect() as connection:
        messages = connection.exec_driver_sql("SELECT message FROM alerts UNION SELECT message FROM alert_events").all()
    assert messages
    assert all(f'"{SEEN_AS}"' in message and SECRET not in message for (message,) in messages)


def test_an_alert_is_one_line_of_plain_text(engine: Engine) -> None:
    for number, text in enumerate(HOSTILE.values()):
        run_in_transaction(
            engine,
            lambda c, text=text, number=number: raise_alert(  # type: ignore[misc]
                c, HOST, "strays", "info", f"it says {text}", dedupe_key=f"k{number}"
            ),
        )
    with engine.connect() as connection:
        found = list_alerts(connection, HOST)
        events = connection.exec_driver_sql("SELECT message FROM alert_events").all()
    assert len(found) == len(events) == len(HOSTILE)
    for message in [each.message for each in found] + [message for (message,) in events]:
        assert is_plain(message)
        assert is_plain(json.loads(json.dumps({"message": message}))["message"])
