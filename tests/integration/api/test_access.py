"""Nobody gets in but whom a route names: walked over every route there is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from oldhost_sync.api.access import ROLES_KEY, Tokens, public_paths
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.settings import Role
from tests.integration.api.conftest import HOST, ScriptedWriter, a_client, served

TOKEN_OF = {Role.APP: "shop", Role.VIEWER: "vera", Role.OPS: "anna"}
# What each role may do, said a second time on purpose: a route that opens by mistake is found here.
MATRIX = {
    ("POST", "/api/units/{unit_id:path}/status"): "app ops",
    ("PUT", "/api/units/{unit_id:path}"): "app ops",
    ("GET", "/api/units"): "app viewer ops",
    ("GET", "/api/units/{unit_id:path}"): "app viewer ops",
    ("POST", "/api/changes"): "app ops",
    ("POST", "/api/changes/batch"): "app ops",
    ("GET", "/api/changes"): "app viewer ops",
    ("GET", "/api/changes/{idempotency_key:path}"): "app viewer ops",
    ("DELETE", "/api/changes/{idempotency_key:path}"): "app ops",
    ("GET", "/api/batches/{idempotency_key:path}"): "app viewer ops",
    ("GET", "/api/events"): "app viewer ops",
    ("POST", "/api/withdrawals/preview"): "ops",
    ("POST", "/api/withdrawals"): "ops",
    ("POST", "/api/withdrawals/{withdrawal_id}/undo"): "ops",
    ("GET", "/api/writer/status"): "viewer ops",
    ("GET", "/api/writer/find"): "viewer ops",
    ("GET", "/api/writer/upcoming"): "viewer ops",
    ("POST", "/api/writer/pause"): "ops",
    ("POST", "/api/writer/resume"): "ops",
    ("POST", "/api/writer/flush"): "ops",
    ("POST", "/api/writer/resolve"): "ops",
    ("GET", "/api/plan"): "viewer ops",
    ("GET", "/api/sessions"): "viewer ops",
    ("GET", "/api/series"): "viewer ops",
    ("GET", "/api/situation"): "viewer ops",
    ("GET", "/api/alerts"): "viewer ops",
    ("POST", "/api/alerts/{alert_id}/acknowledge"): "ops",
    ("POST", "/api/alerts/{alert_id}/close"): "ops",
    ("GET", "/api/audit"): "viewer ops",
    ("GET", "/api/outbox"): "viewer ops",
    ("GET", "/api/outbox/{change_id}"): "app viewer ops",
    ("GET", "/api/outbox/{change_id}/payload"): "ops",
    ("GET", "/api/scheduled"): "viewer ops",
    ("GET", "/api/entities/{entity_type}/{entity_id:path}"): "viewer ops",
    ("GET", "/api/search"): "viewer ops",
    ("GET", "/api/rules"): "viewer ops",
    ("PUT", "/api/rules/{event_type}"): "ops",
    ("GET", "/api/dead-letters"): "viewer ops",
    ("GET", "/api/dead-letters/groups"): "viewer ops",
    ("POST", "/api/dead-letters/retry"): "ops",
    ("POST", "/api/dead-letters/discard"): "ops",
    ("POST", "/api/dead-letters/confirm"): "ops",
    ("POST", "/api/dead-letters/{change_id}/replace"): "ops",
    ("GET", "/api/writer/halt"): "viewer ops",
    ("POST", "/api/dead-letters/{change_id}/retry"): "ops",
    ("POST", "/api/dead-letters/{change_id}/discard"): "ops",
    ("POST", "/api/dead-letters/{change_id}/confirm"): "ops",
    ("GET", "/api/usage"): "viewer ops",
    ("GET", "/api/hosts"): "app viewer ops",
    ("GET", "/healthz"): "",
    ("GET", "/readyz"): "",
    ("GET", "/metrics"): "viewer ops",
    ("GET", "/openapi.json"): "",
}


def routes_of(app: FastAPI) -> Iterator[tuple[str, str, APIRoute]]:
    for route in app.routes:
        assert isinstance(route, APIRoute)
        for method in sorted(route.methods or ()):
            yield method, route.path, route


def a_path(template: str) -> str:
    return re.sub(r"\{[^}]*\}", "7", template)


def test_every_route_is_in_the_matrix(app: FastAPI) -> None:
    stated = {
        (method, path): " ".join(route.openapi_extra[ROLES_KEY])
        for method, path, route in routes_of(app)
        if route.openapi_extra
    }
    assert stated == MATRIX


@pytest.mark.usefixtures("one_plan")
def test_each_role_gets_into_its_routes_and_no_others(app: FastAPI, anyone: httpx.Client) -> None:
    for method, path, _ in routes_of(app):
        for role, token in TOKEN_OF.items():
            with anyone.stream(method, a_path(path), headers={"Authorization": f"Bearer {token}"}) as answer:
                pass  # the status is enough, and the stream of events does not end
            allowed = MATRIX[method, path].split()
            assert (answer.status_code == 403) == (bool(allowed) and role not in allowed), (method, path, role)
            assert answer.status_code != 401


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer nobody", "Basic c2hvcDpzaG9w", "bearer", "shop", "Bearer shop shop", "Bearer \xff"],
)
def test_without_a_known_token_there_are_only_health_and_the_document(
    app: FastAPI, anyone: httpx.Client, authorization: str | None
) -> None:
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    for method, path, _ in routes_of(app):
        answer = anyone.request(method, a_path(path), headers=headers)
        if MATRIX[method, path]:
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.headers["content-type"] == "application/problem+json"
        else:
            assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/nothing", "/docs", "/redoc", "/healthz/", "/HEALTHZ", "/metrics/", "//healthz"])
def test_what_does_not_exist_is_not_told_to_strangers(anyone: httpx.Client, shop: httpx.Client, path: str) -> None:
    answers = [client.get(path) for client in (anyone, shop)]
    assert [answer.status_code for answer in answers] == [401, 404]
    assert all(answer.json()["action"] for answer in answers)


def test_a_forbidden_answer_says_which_role_it_takes(shop: httpx.Client) -> None:
    answer = shop.get("/api/audit")
    assert answer.status_code == 403
    assert answer.json()["detail"] == "The token's role is app; this needs viewer or ops."


def test_a_route_that_does_not_say_who_may_call_it_stops_the_start(app: FastAPI) -> None:
    app.add_api_route("/forgotten", lambda: None)
    with pytest.raises(ValueError, match="who may call it"):
        public_paths(app)


def test_without_tokens_everything_is_refused(database_url: str, writer: ScriptedWriter) -> None:
    app = create_app(Dependencies(HOST, Tokens([]), Database(connect_for_api(database_url)), writer))
    with served(app) as address, a_client(address, "shop") as client:
        assert client.get("/api/units").status_code == 401
        assert client.get("/healthz").status_code == 200


def test_every_answer_carries_the_security_headers(app: FastAPI, anyone: httpx.Client, anna: httpx.Client) -> None:
    for client, path in ((anyone, "/healthz"), (anyone, "/api/units"), (anna, "/api/units"), (anna, "/nothing")):
        answer = client.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers
