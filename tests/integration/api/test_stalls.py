"""Whoever has a token can't make the process too busy to take writes, nor its metrics large."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from oldhost_sync.api import http_limits, telemetry
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.console.app import mount_console
from tests.integration.api.conftest import HOST, TOKENS, ScriptedWriter, a_client


@pytest.fixture
def app() -> FastAPI:
    """Without a database: it is known to be away at once."""
    database = Database(connect_for_api("mysql+pymysql://nobody@127.0.0.1:1/none"))
    return create_app(Dependencies(HOST, TOKENS, database, ScriptedWriter()), mount_console)


def test_what_is_no_route_makes_the_metrics_no_larger(app: FastAPI, address: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(http_limits, "METRICS_SECONDS", 0.0)
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    with a_client(address, "vera") as vera:

        def lines() -> list[str]:
            return [line for line in vera.get("/metrics").text.splitlines() if "request_seconds_count" in line]

        lines()
        for route in routes:
            for method in {"PATCH", "TRACE", "PROPFIND", "OPTIONS"} - (route.methods or set()):
                vera.request(method, route.path.replace("{", "").replace("}", ""))
                vera.request(method, f"{route.path}/none")
        assert len(lines()) == 2, "one line for /metrics, one for all that is no route"
        assert 'method="other",route="other"' in "".join(lines())


def count_calls(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> list[str]:
    """The threads in which the function was called."""
    calls: list[str] = []
    function = getattr(place, name)

    def counted(*given: Any) -> Any:
        calls.append(threading.current_thread().name)
        return function(*given)

    monkeypatch.setattr(place, name, counted)
    return calls


def ask_often(client: httpx.Client, path: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.get(path), range(40)))
    assert {answer.status_code for answer in answers} == {200}


def test_the_metrics_are_rendered_once_a_second_beside_the_event_loop(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "METRICS_SECONDS", 3_600.0)
    calls = count_calls(monkeypatch, telemetry, "generate_latest")
    with a_client(address, "vera") as vera:
        ask_often(vera, "/metrics")
    assert len(calls) == 1
    assert "(run)" not in calls[0], "the server's own thread, whose loop answers"


def test_the_document_is_rendered_once_beside_the_event_loop(
    app: FastAPI, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_calls(monkeypatch, app, "openapi")
    with a_client(address, "vera") as vera:
        assert vera.get("/openapi.json").json()["openapi"]
        ask_often(vera, "/openapi.json")
    assert len(calls) == 1
    assert "(run)" not in calls[0], "the server's own thread, whose loop answers"


def test_a_token_that_reads_too_much_is_refused_and_others_are_not(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "READ_BYTES_PER_SECOND", 1)
    monkeypatch.setattr(http_limits, "READ_WAIT_SECONDS_MAX", 0.0)
    with a_client(address, "vera") as vera, a_client(address, "anna") as anna:
        answers = [vera.get("/metrics") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 429, 429]
        assert answers[-1].json()["type"].endswith(":too-much-read")
        assert anna.get("/metrics").status_code == 200
