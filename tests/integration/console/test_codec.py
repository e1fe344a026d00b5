"""The codec endpoint for Temporal's UI: who may have payloads decrypted, and from which page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest
from google.protobuf.json_format import MessageToJson
from sqlalchemy import text
from sqlalchemy.engine import Engine
from temporalio.api.common.v1 import Payload, Payloads

from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.console.app import ConsoleOptions, mount_console
from oldhost_sync.console.door import DECODE
from oldhost_sync.console.paths import SIGN_IN
from oldhost_sync.credentials import EncryptionKey
from oldhost_sync.temporal.client import CompressThenEncrypt
from tests.integration.api.conftest import HOST, TOKENS, ScriptedWriter, a_client, served

KEY = EncryptionKey("2027", bytes(range(32)))
UI = "https://temporal.example.com"
SECRET = Payload(metadata={"encoding": b"json/plain"}, data=b'"anna"')


def body_of(payload: Payload, key: EncryptionKey = KEY) -> str:
    sealed = asyncio.run(CompressThenEncrypt([key]).encode([payload]))
    return MessageToJson(Payloads(payloads=sealed))


@pytest.fixture(scope="module")
def sealed() -> str:
    return body_of(SECRET)


@pytest.fixture
def address(database_url: str, writer: ScriptedWriter) -> Iterator[str]:
    options = ConsoleOptions(temporal_ui=f"{UI}/namespaces/default", temporal_keys=[KEY])
    dependencies = Dependencies(HOST, TOKENS, Database(connect_for_api(database_url)), writer)
    with served(create_app(dependencies, lambda app, given: mount_console(app, given, options))) as address:
        yield address


def signed_in(client: httpx.Client, token: str) -> None:
    own = {"Origin": str(client.base_url).rstrip("/")}
    assert client.post(SIGN_IN, data={"token": token}, headers=own).status_code == 303


def ask(client: httpx.Client, body: str, origin: str = UI) -> httpx.Response:
    return client.post(DECODE, content=body, headers={"Origin": origin, "Content-Type": "application/json"})


def test_an_operator_reads_payloads_in_temporals_ui_and_the_audit_knows(
    address: str, sealed: str, engine: Engine
) -> None:
    with a_client(address) as client:
        signed_in(client, "anna")
        answer = ask(client, sealed)
    assert answer.status_code == 200
    assert json.loads(answer.text)["payloads"][0]["data"] == "ImFubmEi"
    assert answer.headers["access-control-allow-origin"] == UI
    assert answer.headers["access-control-allow-credentials"] == "true"
    with engine.connect() as connection:
        acts = connection.execute(
            text("SELECT action, operator, channel FROM operator_audit WHERE action <> 'sign-in'")
        ).all()
    assert [tuple(act) for act in acts] == [("decode-payloads", "anna", "console")]


@pytest.mark.parametrize("token", [None, "vera"])
def test_nobody_else_reads_them(address: str, sealed: str, token: str | None) -> None:
    with a_client(address) as client:
        if token is not None:
            signed_in(client, token)
        assert ask(client, sealed).status_code == (401 if token is None else 403)


def test_another_site_gets_nothing_even_with_an_operators_cookie(address: str, sealed: str) -> None:
    with a_client(address) as client:
        signed_in(client, "anna")
        for origin in ("https://evil.example", "null", f"{UI}.evil.example"):
            answer = ask(client, sealed, origin)
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers


def test_without_an_address_of_the_ui_nobody_is_answered(
    database_url: str, writer: ScriptedWriter, sealed: str
) -> None:
    dependencies = Dependencies(HOST, TOKENS, Database(connect_for_api(database_url)), writer)
    options = ConsoleOptions(temporal_keys=[KEY])
    with (
        served(create_app(dependencies, lambda app, given: mount_console(app, given, options))) as address,
        a_client(address) as client,
    ):
        signed_in(client, "anna")
        json_body = {"Content-Type": "application/json"}
        for headers in ({}, {"Origin": ""}, {"Origin": "null"}, {"Origin": address}, {"Origin": UI}):
            for method in ("POST", "OPTIONS"):
                answer = client.request(method, DECODE, content=sealed, headers={**json_body, **headers})
                assert answer.status_code == 403
                assert "access-control-allow-origin" not in answer.headers


def test_temporals_ui_may_ask_for_nothing_else(address: str) -> None:
    with a_client(address) as client:
        signed_in(client, "anna")
        answer = client.post("/console/pause", data={"reason": "x"}, headers={"Origin": UI})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_a_browser_may_ask_before_it_asks(address: str) -> None:
    with a_client(address) as client:
        first = client.options(DECODE, headers={"Origin": UI, "Access-Control-Request-Method": "POST"})
        assert first.status_code == 204
        assert "x-namespace" in first.headers["access-control-allow-headers"]
        foreign = client.options(DECODE, headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in foreign.headers


def test_a_payload_that_can_t_be_read_is_told(address: str) -> None:
    with a_client(address) as client:
        signed_in(client, "anna")
        missing = ask(client, body_of(SECRET, EncryptionKey("2026", bytes(32))))
        assert missing.status_code == 422
        assert "2026" in missing.text
        assert ask(client, "nonsense").status_code == 422
