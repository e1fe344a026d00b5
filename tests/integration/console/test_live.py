"""The stream that keeps a page live, over a real socket; and the charts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.api.http_limits import SHUTDOWN_SECONDS
from oldhost_sync.api.writer_link import writer_away
from oldhost_sync.console import live_stream
from oldhost_sync.console.door import STREAM
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.roles.api import ServerOfStreams, configure
from oldhost_sync.settings import Settings
from oldhost_sync.store.access import end_sessions_of
from oldhost_sync.store.read.figures import record_sample
from tests.integration.api.conftest import HOST, ScriptedWriter, a_client
from tests.integration.console.conftest import an_app, browser


def events(stream: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in stream.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


@contextmanager
def streaming(client: httpx.Client) -> Iterator[Iterator[dict[str, Any]]]:
    with client.stream("GET", STREAM) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        yield events(stream)


def test_the_stream_begins_with_every_part_of_the_page(vera: httpx.Client) -> None:
    page = vera.get(PREFIX).text
    with streaming(vera) as found:
        parts = next(found)["parts"]
    assert "SENDING" in parts["banner"]
    assert {name for name in parts if f'id="part-{name}"' in page} == set(parts) - {"charts-24h", "charts-7d"}


def test_the_stream_tells_of_an_outage_in_words(vera: httpx.Client, writer: ScriptedWriter) -> None:
    with streaming(vera) as found:
        assert "SENDING" in next(found)["parts"]["banner"]
        writer.problem = writer_away("Temporal or the worker does not answer")
        banner = next(event["parts"]["banner"] for event in found if "banner" in event["parts"])
    assert "NO WRITER" in banner


def test_who_is_not_signed_in_gets_no_stream(anyone: httpx.Client) -> None:
    assert anyone.get(STREAM).status_code == 303


def test_beyond_the_limit_a_stream_is_refused_and_the_page_is_not(
    database_url: str, writer: ScriptedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_stream, "LISTENERS_MAX", 1)
    app = an_app(database_url, writer)
    with serving_streams(app) as address, browser(address, "vera") as client, streaming(client) as found:
        next(found)
        refused = client.get(STREAM)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        assert client.get(PREFIX).status_code == 200


def test_one_sign_in_leaves_places_to_others(
    database_url: str, writer: ScriptedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_stream, "OF_ONE_SIGN_IN_MAX", 2)
    monkeypatch.setattr(live_stream, "OF_ONE_TOKEN_MAX", 3)
    with serving_streams(an_app(database_url, writer)) as address, ExitStack() as clients:

        def a_browser(token: str) -> httpx.Client:
            return clients.enter_context(browser(address, token))

        one, two, other = a_browser("vera"), a_browser("vera"), a_browser("anna")
        kept_open = [clients.enter_context(streaming(client)) for client in (one, one, two)]
        for found in kept_open:
            next(found)
        assert one.get(STREAM).status_code == 503
        assert two.get(STREAM).status_code == 503
        next(clients.enter_context(streaming(other)))


@pytest.mark.parametrize("place", ["here", "in another process", "by an operator", "without a use"])
def test_a_stream_ends_with_its_sign_in(
    database_url: str, writer: ScriptedWriter, engine: Engine, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_stream, "POLL_SECONDS", 3_600.0)
    with (
        serving_streams(an_app(database_url, writer)) as address,
        browser(address, "vera") as client,
        streaming(client) as found,
    ):
        next(found)
        if place == "here":
            client.post(f"{PREFIX}/sign-out")
        with engine.begin() as connection:
            if place == "in another process":
                connection.execute(text("DELETE FROM console_sessions"))
            elif place == "by an operator":
                assert end_sessions_of(connection, HOST, "vera") == 1
            elif place == "without a use":
                connection.execute(text("UPDATE console_sessions SET seen_at = seen_at - INTERVAL 7201 SECOND"))
        assert list(found) == []


def test_open_streams_do_not_hold_up_the_end_of_the_process(database_url: str, writer: ScriptedWriter) -> None:
    with ExitStack() as clients:
        with serving_streams(an_app(database_url, writer)) as address:
            found = clients.enter_context(streaming(clients.enter_context(browser(address, "vera"))))
            next(found)
        # The server has ended while the stream was open; what is left of the stream ends, too.
        assert all("at" in event for event in found)


@contextmanager
def serving_streams(app: FastAPI) -> Iterator[str]:
    """As the role serves it: told to end while streams are open, it ends them."""
    server = ServerOfStreams(configure(app, Settings(api_bind="127.0.0.1:0")))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(SHUTDOWN_SECONDS - 1)
    assert not thread.is_alive()


@pytest.mark.parametrize("span", ["1h", "24h", "7d"])
def test_charts_show_what_the_relay_recorded(vera: httpx.Client, engine: Engine, span: str) -> None:
    assert "Nothing is recorded yet" in vera.get(PREFIX, params={"span": span}).text
    with engine.begin() as connection:
        record_sample(connection, HOST)
    with browser(str(vera.base_url), "anna") as client:
        page = client.get(PREFIX, params={"span": span}).text
    assert page.count("<svg viewBox=") == 3
    assert f'id="part-charts-{span}"' in page


def test_an_unknown_span_is_refused_on_a_page(vera: httpx.Client) -> None:
    answer = vera.get(PREFIX, params={"span": "2h"})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "text/html; charset=utf-8")


def test_the_api_has_the_series_and_the_situation(address: str, engine: Engine, writer: ScriptedWriter) -> None:
    with engine.begin() as connection:
        record_sample(connection, HOST)
    writer.problem = writer_away("Temporal or the worker does not answer")
    with a_client(address, "vera") as client:
        series = client.get("/api/series", params={"span": "24h"}).json()
        assert (series["step_seconds"], len(series["points"])) == (60, 1)
        situation = client.get("/api/situation").json()
    assert (situation["word"], situation["tone"]) == ("NO WRITER", "bad")
