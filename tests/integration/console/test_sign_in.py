"""Who gets into the console, for how long, and that nobody else's page can act in their name."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import Engine, text

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import ROLES_KEY, Tokens
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.console.app import ConsoleOptions, mount_console
from oldhost_sync.console.door import STREAM, THEME
from oldhost_sync.console.layout import SESSION_COOKIE
from oldhost_sync.console.paths import ASSETS, DOCS, LINK, PREFIX, SIGN_IN
from oldhost_sync.console.sign_in_link import offer_link
from oldhost_sync.roles.api import console_of
from oldhost_sync.settings import load_settings
from tests.integration.api.conftest import HOST, TOKENS, ScriptedWriter, a_token, served
from tests.integration.console.conftest import an_app, browser

SIGN_OUT = f"{PREFIX}/sign-out"
PAUSE = f"{PREFIX}/pause"
WHY = {"reason": "because"}
OPEN_TO_ALL = {SIGN_IN, LINK, THEME, ASSETS + "/{digest}/{name}"}


def a_link(engine: Engine, name: str, role: str) -> str:
    with engine.begin() as connection:
        return offer_link(connection, HOST, a_token(name, role))


@pytest.mark.parametrize("token", ["vera", "anna"])
def test_viewers_and_operators_sign_in_by_their_token(anyone: httpx.Client, token: str) -> None:
    assert anyone.post(SIGN_IN, data={"token": token}).headers["location"] == PREFIX
    page = anyone.get(PREFIX)
    assert page.status_code == 200
    assert token in page.text


@pytest.mark.parametrize("token", ["shop", "nobody", "", "vera "])
def test_an_application_s_token_and_an_unknown_one_are_refused(anyone: httpx.Client, token: str) -> None:
    answer = anyone.post(SIGN_IN, data={"token": f"{token}x" if token.endswith(" ") else token})
    assert answer.status_code == 403
    assert SESSION_COOKIE not in anyone.cookies


def test_the_cookie_is_for_this_site_alone_and_not_for_scripts(anyone: httpx.Client) -> None:
    cookie = anyone.post(SIGN_IN, data={"token": "vera"}).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", f"Path={PREFIX}"} <= {part.strip() for part in cookie.split(";")}
    assert "Max-Age=43200" in cookie
    assert "Secure" not in cookie


def test_the_address_alone_leads_to_the_console(anyone: httpx.Client) -> None:
    assert anyone.get("/").headers["location"] == PREFIX


def test_the_page_of_the_api_is_there_before_one_has_a_token(anyone: httpx.Client, vera: httpx.Client) -> None:
    def document(page: httpx.Response) -> str:
        return page.text.partition('<main id="main"')[2].partition("</main>")[0]

    told, signed_in = anyone.get(DOCS), vera.get(f"{PREFIX}/api")
    assert 'id="changes_create"' in document(told)
    assert document(told) == document(signed_in)
    assert 'class="who-name"' in signed_in.text
    assert 'class="who-name"' not in told.text


def test_behind_tls_the_cookie_goes_by_tls_only(database_url: str, writer: ScriptedWriter) -> None:
    options = ConsoleOptions(origin="https://sync.example.com")
    with served(an_app(database_url, writer, options)) as address, browser(address) as client:
        answer = client.post(SIGN_IN, data={"token": "vera"}, headers={"Origin": "https://sync.example.com"})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"__Host-{SESSION_COOKIE}=")
        assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
        assert client.post(SIGN_IN, data={"token": "vera"}).status_code == 403


def test_behind_tls_every_answer_keeps_browsers_on_it(
    anyone: httpx.Client, database_url: str, writer: ScriptedWriter
) -> None:
    options = ConsoleOptions(origin="https://sync.example.com")
    with served(an_app(database_url, writer, options)) as address, browser(address) as client:
        for path in (SIGN_IN, "/healthz", "/api/units", f"{PREFIX}/none"):
            assert client.get(path).headers["strict-transport-security"] == "max-age=31536000"
    assert "strict-transport-security" not in anyone.get(SIGN_IN).headers


def test_a_sign_in_with_the_prefix_lasts_and_ends(database_url: str, writer: ScriptedWriter) -> None:
    own = {"Origin": "https://sync.example.com"}
    with (
        served(an_app(database_url, writer, ConsoleOptions(origin=own["Origin"]))) as address,
        browser(address) as client,
    ):
        cookie = client.post(SIGN_IN, data={"token": "vera"}, headers=own).headers["set-cookie"].partition(";")[0]
        signed_in = {"Cookie": cookie, **own}
        assert client.get(PREFIX, headers=signed_in).status_code == 200
        ended = client.post(SIGN_OUT, headers=signed_in).headers.get_list("set-cookie")
        assert any("Max-Age=0" in each and f"__Host-{SESSION_COOKIE}=" in each for each in ended)
        assert client.get(PREFIX, headers=signed_in).status_code == 303


def test_the_audit_knows_who_signed_in_and_out(anna: httpx.Client, engine: Engine) -> None:
    anna.post(SIGN_OUT)
    with engine.connect() as connection:
        acts = connection.execute(text("SELECT action, operator, channel, verified FROM operator_audit ORDER BY id"))
        assert [tuple(act) for act in acts] == [("sign-in", "anna", "console", 1), ("sign-out", "anna", "console", 1)]


def test_a_sign_in_that_nobody_uses_ends_and_a_live_page_is_no_use(vera: httpx.Client, engine: Engine) -> None:
    def unused_for(seconds: int) -> None:
        with engine.begin() as connection:
            connection.execute(
                text(f"UPDATE console_sessions SET seen_at = UTC_TIMESTAMP(6) - INTERVAL {seconds} SECOND")
            )

    def seen() -> datetime:
        with engine.connect() as connection:
            found: datetime = connection.execute(text("SELECT seen_at FROM console_sessions")).scalar_one()
            return found

    unused_for(7_000)
    before = seen()
    with vera.stream("GET", STREAM) as stream:
        assert stream.status_code == 200
    assert seen() == before
    assert vera.get(PREFIX).status_code == 200
    assert seen() > before + timedelta(seconds=6_900)
    unused_for(7_300)
    assert vera.get(PREFIX).status_code == 303


def test_the_settings_say_how_long_a_sign_in_lasts_and_how_long_unused(
    database_url: str, engine: Engine, writer: ScriptedWriter
) -> None:
    settings = load_settings(console_session_seconds=3_600, console_idle_seconds=600)
    dependencies = Dependencies(HOST, TOKENS, Database(connect_for_api(database_url)), writer)
    with served(create_app(dependencies, console_of(settings))) as address, browser(address) as client:
        told = client.post(SIGN_IN, data={"token": "vera"})
        assert "Max-Age=3600" in told.headers["set-cookie"]
        assert client.get(PREFIX).status_code == 200
        with engine.begin() as connection:
            connection.execute(text("UPDATE console_sessions SET seen_at = UTC_TIMESTAMP(6) - INTERVAL 700 SECOND"))
        assert client.get(PREFIX).status_code == 303


def test_the_database_knows_no_secret(anna: httpx.Client, engine: Engine) -> None:
    with engine.connect() as connection:
        row = connection.execute(text("SELECT * FROM console_sessions")).one()
    secret = anna.cookies[SESSION_COOKIE].encode()
    assert all(secret not in bytes(str(value), "utf-8") for value in row)
    assert a_token("anna", "ops").fingerprint == row.token_fingerprint


def test_who_is_not_signed_in_is_sent_to_the_sign_in_and_back(anyone: httpx.Client) -> None:
    there = anyone.get(f"{PREFIX}/somewhere")
    assert (there.status_code, there.headers["location"]) == (303, f"{SIGN_IN}?next=/console/somewhere")
    back = anyone.post(SIGN_IN, data={"token": "vera", "next": "/console/somewhere"})
    assert back.headers["location"] == "/console/somewhere"


@pytest.mark.parametrize(
    "elsewhere", ["//evil.example", "https://evil.example", "/consoleX", "/console/\\evil", "/api"]
)
def test_the_sign_in_leads_to_no_other_site(anyone: httpx.Client, elsewhere: str) -> None:
    assert anyone.post(SIGN_IN, data={"token": "vera", "next": elsewhere}).headers["location"] == PREFIX


def test_signing_out_ends_the_session_and_not_only_the_cookie(vera: httpx.Client, address: str) -> None:
    kept = vera.cookies[SESSION_COOKIE]
    assert vera.post(SIGN_OUT).headers["location"] == SIGN_IN
    with browser(address) as thief:
        thief.cookies.set(SESSION_COOKIE, kept)
        assert thief.get(PREFIX).status_code == 303


def test_a_session_ends_with_its_time(vera: httpx.Client, engine: Engine) -> None:
    assert vera.get(PREFIX).status_code == 200
    with engine.begin() as connection:
        connection.execute(text("UPDATE console_sessions SET expires_at = UTC_TIMESTAMP(6)"))
    assert vera.get(PREFIX).status_code == 303


@pytest.mark.parametrize("tokens", [[], [a_token("vera2", "viewer")], [a_token("vera", "app")]])
def test_a_session_ends_with_its_token(
    vera: httpx.Client, database_url: str, writer: ScriptedWriter, tokens: list[object]
) -> None:
    dependencies = Dependencies(HOST, Tokens(tokens), Database(connect_for_api(database_url)), writer)  # type: ignore[arg-type]
    with served(create_app(dependencies, mount_console)) as address, browser(address) as client:
        client.cookies.set(SESSION_COOKIE, vera.cookies[SESSION_COOKIE])
        assert client.get(PREFIX).status_code == 303


def test_a_session_outlives_the_process_that_opened_it(
    vera: httpx.Client, database_url: str, writer: ScriptedWriter
) -> None:
    with served(an_app(database_url, writer)) as address, browser(address) as client:
        client.cookies.set(SESSION_COOKIE, vera.cookies[SESSION_COOKIE])
        assert client.get(PREFIX).status_code == 200


def test_a_link_signs_in_once(anyone: httpx.Client, engine: Engine, address: str) -> None:
    secret = a_link(engine, "anna", "ops")
    assert anyone.get(LINK, params={"secret": secret}).headers["location"] == PREFIX
    assert "anna" in anyone.get(PREFIX).text
    with browser(address) as second:
        assert second.get(LINK, params={"secret": secret}).status_code == 403


def test_a_link_gets_too_old(anyone: httpx.Client, engine: Engine) -> None:
    secret = a_link(engine, "anna", "ops")
    with engine.begin() as connection:
        connection.execute(text("UPDATE sign_in_links SET expires_at = UTC_TIMESTAMP(6)"))
    assert anyone.get(LINK, params={"secret": secret}).status_code == 403


def test_a_link_opens_nothing_by_a_foreign_name(anyone: httpx.Client, engine: Engine) -> None:
    secret = a_link(engine, "anna", "ops")
    answer = anyone.get(LINK, params={"secret": secret}, headers={"Host": "rebound.example"})
    assert answer.status_code == 403


def test_a_link_of_an_application_opens_nothing(anyone: httpx.Client, engine: Engine) -> None:
    assert anyone.get(LINK, params={"secret": a_link(engine, "shop", "app")}).status_code == 403


def test_an_operator_signs_in_however_many_others_have_failed(anyone: httpx.Client) -> None:
    assert {anyone.post(SIGN_IN, data={"token": "guess"}).status_code for _ in range(50)} == {403}
    assert anyone.post(SIGN_IN, data={"token": "anna"}).status_code == 303


def test_who_fails_again_and_again_is_answered_at_a_pace(anyone: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "STRANGERS_AT_ONCE", 1)
    monkeypatch.setattr(http_limits, "STRANGERS_PER_SECOND", 10)
    began = time.monotonic()
    assert [anyone.post(SIGN_IN, data={"token": "guess"}).status_code for _ in range(5)] == [403] * 5
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "http://127.0.0.1", "https://127.0.0.1:1"])
@pytest.mark.parametrize("path", [SIGN_IN, SIGN_OUT, PAUSE, THEME])
def test_what_does_not_come_from_the_console_is_refused(
    anna: httpx.Client, writer: ScriptedWriter, path: str, origin: str | None
) -> None:
    anna.headers.pop("Origin")
    answer = anna.post(path, data=WHY, headers={"Origin": origin} if origin else {})
    assert answer.status_code == 403
    assert writer.acts == []
    assert anna.get(PREFIX).status_code == 200


def test_a_viewer_reads_and_does_not_act(vera: httpx.Client, writer: ScriptedWriter) -> None:
    assert vera.post(PAUSE, data=WHY).status_code == 403
    assert writer.acts == []
    assert PAUSE not in vera.get(PREFIX).text


def test_a_token_opens_no_page_and_a_session_no_route_of_the_api(anna: httpx.Client, anyone: httpx.Client) -> None:
    assert anna.get("/api/writer/status").status_code == 401
    assert anyone.get(PREFIX, headers={"Authorization": "Bearer anna"}).status_code == 303


def test_every_route_of_the_console_says_who_may_use_it(app: FastAPI) -> None:
    routes = [each for each in app.routes if isinstance(each, APIRoute) and each.path.startswith(PREFIX)]
    roles = {(route.path, *sorted(route.methods or ())): (route.openapi_extra or {})[ROLES_KEY] for route in routes}
    assert {path for (path, *_), allowed in roles.items() if not allowed} == OPEN_TO_ALL
    for (path, *methods), allowed in roles.items():
        acts = "POST" in methods and path not in OPEN_TO_ALL | {SIGN_OUT}
        assert path in OPEN_TO_ALL or allowed == (["ops"] if acts else ["viewer", "ops"]), path


def test_who_is_signed_in_can_still_look_while_the_database_is_away(
    vera: httpx.Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert vera.get(PREFIX).status_code == 200
    monkeypatch.setattr(Database, "work", _away)
    page = vera.get(PREFIX)
    assert page.status_code == 200
    assert "MariaDB is away" in page.text


async def _away(_database: Database, _fn: object) -> None:
    from oldhost_sync.store.errors import DatabaseUnavailable

    raise DatabaseUnavailable("connection refused")


def test_nobody_signs_in_while_the_database_is_away(anyone: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "work", _away)
    answer = anyone.post(SIGN_IN, data={"token": "vera"})
    assert answer.status_code == 503
    assert answer.headers["content-type"].startswith("text/html")
    assert "database" in answer.text
