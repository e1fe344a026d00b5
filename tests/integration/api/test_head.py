"""HEAD on whatever has GET: the same status and header, and nothing after it."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from oldhost_sync.api.middleware import as_get

pytestmark = pytest.mark.mariadb
# They tell of this moment.
CHANGING = {"date", "content-length", "etag"}


@pytest.mark.usefixtures("one_plan")
def test_every_path_that_has_get_has_head(anna: httpx.Client) -> None:
    paths = [
        path
        for path, methods in anna.get("/openapi.json").json()["paths"].items()
        if "get" in methods and "{" not in path and "writer/find" not in path and "search" not in path
    ]
    assert {"/healthz", "/readyz", "/metrics", "/api/units", "/api/changes"} <= set(paths)
    for path in [*paths, "/openapi.json", "/nothing", "/api/units/none", "/api/units?limit=x", "/api/outbox/0"]:
        got, headed = anna.get(path), anna.head(path)
        assert (headed.status_code, headed.content) == (got.status_code, b""), path
        assert headed.headers.keys() == got.headers.keys(), path
        for name in headed.headers.keys() - CHANGING:
            assert headed.headers[name] == got.headers[name], (path, name)


def test_head_needs_what_get_needs(anyone: httpx.Client, shop: httpx.Client) -> None:
    assert anyone.head("/api/units").status_code == 401
    assert shop.head("/api/outbox").status_code == 403
    assert anyone.head("/healthz").status_code == 200


def test_a_path_without_get_says_so(shop: httpx.Client) -> None:
    answer = shop.head("/api/changes/batch/x/y")
    assert answer.status_code == 404  # as a key: changes have GET
    answer = shop.head("/api/units/12B/status")
    assert answer.status_code == shop.get("/api/units/12B/status").status_code


def talk(address: str, request: bytes) -> bytes:
    """What the server sends until it closes."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as stream:
            return stream.read()


def test_the_answer_to_the_next_request_follows_at_once(address: str) -> None:
    """A content after the header of a HEAD would be taken for it."""
    said = talk(
        address,
        b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    )
    assert said.count(b"HTTP/1.1 200 OK") == 2
    first, second = said.split(b"\r\n\r\n", 1)
    assert second.startswith(b"HTTP/1.1 200 OK")
    assert b"content-length: 0" not in first.lower()


@pytest.mark.parametrize("blanks", ["{}", " {}", "\t{}\t", "{} ", "  {} \t "])
def test_blanks_around_the_value_of_a_header_are_no_part_of_it(address: str, blanks: str) -> None:
    token = blanks.format("Bearer anna")
    said = talk(
        address, f"GET /api/units HTTP/1.1\r\nHost: x\r\nAuthorization:{token}\r\nConnection: close\r\n\r\n".encode()
    )
    assert said.startswith(b"HTTP/1.1 200 ")


def test_a_stream_is_told_that_its_reader_is_gone() -> None:
    sent: list[Message] = []
    told: list[Message] = []

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["method"] == "GET"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        told.append(await receive())

    async def never() -> Message:
        raise AssertionError

    async def keep(message: Message) -> None:
        sent.append(message)

    asyncio.run(stream(*as_get({"type": "http", "method": "HEAD"}, never, keep)))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert (sent[1]["body"], sent[1]["more_body"], told[0]["type"]) == (b"", False, "http.disconnect")
