"""OldHost's words may repeat a payload: no viewer sees them, and no alert has them, by any path."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import Engine

from oldhost_sync.api.access import ROLES_KEY
from oldhost_sync.console.door import STREAM
from oldhost_sync.policy.rules.operator_act import OperatorAct
from oldhost_sync.store.alerts import keep_dead_letter_alerts, list_alerts, raise_alert
from oldhost_sync.store.ledger.fates import APART
from oldhost_sync.store.ledger.operator_commands import decide
from oldhost_sync.store.transactions import run_in_transaction
from tests.integration.api.conftest import HOST, a_client
from tests.integration.console.test_lookups import SECRET, rejected, run_sql
from tests.unit.policy.test_plain_text import HOSTILE, is_plain

pytestmark = pytest.mark.mariadb
ECHO = f"guest '{SECRET}' has no room, code 47110815"
SEEN_AS = "guest # has no room, code #"
QUERIES = {"search": "?q=k-1", "group": f"?reason={quote(SEEN_AS)}"}


LEDGER = "host, nonce, epoch, change_id, idempotency_key, body, answer, sent_at, completed_at, status"
ROW = ":host, 9, 4, :id, 'k-1', '{}', :answer, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)"


@pytest.fixture
def letter(engine: Engine) -> int:
    """A dead letter whose answer repeats what was sent."""
    change_id = rejected(engine, "k-1", error=ECHO)
    statement = f"INSERT INTO nonce_requests ({LEDGER}) VALUES ({ROW}, 'FAILED')"
    run_sql(engine, statement, host=HOST, id=change_id, answer=ECHO)
    run_in_transaction(engine, lambda connection: keep_dead_letter_alerts(connection, HOST))
    return change_id


def discard(engine: Engine, letter: int) -> None:
    run_in_transaction(engine, lambda c: decide(c, OperatorAct(HOST, "discard", "anna", "why", letter)))


def set_apart(engine: Engine, letter: int) -> None:
    """As if OldHost had refused it without using its nonce."""
    run_sql(engine, "UPDATE outbox_events SET outcome = NULL, processed_at = NULL, error = NULL")
    run_sql(engine, "DELETE FROM nonce_requests")
    columns, values = f"{LEDGER}, archived_at, reason", f"{ROW}, 'SENT', UTC_TIMESTAMP(6), :reason"
    statement = f"INSERT INTO nonce_requests_archive ({columns}) VALUES ({values})"
    run_sql(engine, statement, host=HOST, id=letter, answer=ECHO, reason=APART)


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


def beginning(client: httpx.Client, path: str) -> str:
    """The answer's text; of a stream that does not end, what it has at once."""
    with client.stream("GET", path) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return next(answer.iter_text())
        return answer.read().decode()


@pytest.mark.parametrize(("becomes", "seen_at"), [(None, 6), (discard, 5), (set_apart, 2)])
def test_a_viewer_sees_it_nowhere_and_an_operator_does(
    app: FastAPI,
    address: str,
    engine: Engine,
    vera: httpx.Client,
    anna: httpx.Client,
    letter: int,
    becomes: Callable[[Engine, int], None] | None,
    seen_at: int,
) -> None:
    if becomes is not None:
        becomes(engine, letter)
    seen_by_operators = 0
    with a_client(address, "vera") as of_vera, a_client(address, "anna") as of_anna:
        for path in addresses(app, "viewer", letter):
            viewer, operator = (vera, anna) if path.startswith("/console") else (of_vera, of_anna)
            shown = beginning(viewer, path)
            assert SECRET not in shown, path
            assert "47110815" not in shown, path
            seen_by_operators += SECRET in beginning(operator, path)
        if becomes is not set_apart:
            assert of_vera.get(f"/api/outbox/{letter}").json()["error"] == SEEN_AS
    assert seen_by_operators >= seen_at, "the routes were asked about the letter"


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
