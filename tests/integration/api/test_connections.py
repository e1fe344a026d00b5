"""What a stranger may make large or long has a bound, on real sockets: headers, bodies, silence, connections."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI

from oldhost_sync.api import http_limits
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from tests.integration.api.conftest import HOST, TOKENS, ScriptedWriter, a_client, served

NO_DATABASE = "mysql+pymysql://nobody@127.0.0.1:1/none"
ALIVE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /api/changes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer shop\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """Nothing here gets as far as the database."""
    return create_app(Dependencies(HOST, TOKENS, Database(connect_for_api(NO_DATABASE)), ScriptedWriter()))


@pytest.fixture(scope="module")
def address(app: FastAPI) -> Iterator[str]:
    with served(app) as address:
        yield address


@contextlib.contextmanager
def connected(address: str, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=10, source_address=(source, 0)) as connection:
        yield connection


def send(connection: socket.socket, data: bytes) -> None:
    """As far as the other side takes it."""
    with contextlib.suppress(OSError):
        connection.sendall(data)


def is_answered(connection: socket.socket) -> bool:
    """Ask for `/healthz`, and read the whole answer, whatever parts it comes in."""
    connection.sendall(ALIVE)
    answer = b""
    while not answer.endswith(b'{"status":"ok"}') and (part := connection.recv(65_536)):
        answer += part
    return answer.startswith(b"HTTP/1.1 200")


def read_all(connection: socket.socket) -> bytes:
    """Until the other side ends the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def told(answer: bytes) -> tuple[int, str]:
    """Status and kind of the last answer, which must be a whole problem."""
    head, _, body = answer[answer.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    problem = json.loads(body)
    assert problem["action"]
    return int(head[9:12]), problem["type"].rpartition(":")[2]


@pytest.mark.parametrize(
    "endless",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 65_536,
        b"GET /" + b"a" * 65_536,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: 1\r\n" % number for number in range(2_000)),
        b"GET / HTTP/1.1\r\nHost: x\r\nX" + b"a" * 65_536,
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * http_limits.HEADER_BYTES_MAX + b"\r\n\r\n",
    ],
    ids=["value", "path", "count", "name", "complete"],
)
def test_a_header_that_is_too_large_is_a_431_and_ends_the_connection(address: str, endless: bytes) -> None:
    with connected(address) as connection:
        send(connection, endless)
        assert told(read_all(connection)) == (431, "header-too-large")


def test_an_endless_header_is_read_no_further_than_its_limit(address: str) -> None:
    with connected(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 64 * 1024 * 1024:
                connection.sendall(b"a" * 65_536)
                sent += 65_536
        # What is thrown away after the refusal, and what both systems' buffers hold.
        assert sent < 16 * 1024 * 1024


def test_a_header_within_the_limits_is_read(address: str) -> None:
    headers = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 100) for number in range(90))
    with connected(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + b"\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("late", [b"GET / HTTP/1.1\r\nHost: x\r\nX: ", b"GE"], ids=["header", "method"])
def test_a_header_that_does_not_come_is_a_408(address: str, late: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "HEADER_SECONDS_MAX", 0.2)
    with connected(address) as connection:
        connection.sendall(late)
        assert told(read_all(connection)) == (408, "too-slow")


def test_a_header_that_drips_is_a_408_however_steadily(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "HEADER_SECONDS_MAX", 0.3)
    with connected(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
        began = time.monotonic()
        dripping = threading.Event()

        def drip() -> None:
            while not dripping.wait(0.02):
                send(connection, b"a")

        thread = threading.Thread(target=drip)
        thread.start()
        answer = read_all(connection)
        dripping.set()
        thread.join()
    assert told(answer) == (408, "too-slow")
    assert time.monotonic() - began < 5


def test_a_body_that_does_not_come_is_a_408(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "BODY_SECONDS_MAX", 0.2)
    with connected(address) as connection:
        connection.sendall(POST + b'Content-Length: 100\r\n\r\n{"ent')
        assert told(read_all(connection)) == (408, "too-slow")


def test_a_body_that_no_route_reads_ends_the_connection(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "BODY_SECONDS_MAX", 0.2)
    with connected(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_trailer_is_no_header(address: str) -> None:
    with connected(address) as connection:
        connection.sendall(
            b"POST /api/changes HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nAuthorization: Bearer shop\r\n\r\n"
        )
        assert told(read_all(connection)) == (401, "unauthenticated")


@pytest.mark.parametrize("name", [b"Authorization", b"Idempotency-Key"])
def test_a_header_that_decides_is_not_given_twice(address: str, name: bytes) -> None:
    with connected(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + 2 * (name + b": Bearer shop\r\n") + b"\r\n")
        assert told(read_all(connection)) == (400, "repeated-header")


def test_trailers_are_bounded_as_headers_are(address: str) -> None:
    with connected(address) as connection:
        send(connection, POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + b"X: a\r\n" * 5_000)
        assert b"HTTP/1.1 431" in read_all(connection)


def test_silent_connections_are_closed_and_nobody_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "HEADER_SECONDS_MAX", 0.2)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(address)) for _ in range(50)]
        assert [read_all(connection) for connection in silent] == [b""] * 50


def test_line_breaks_keep_no_connection_open(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "HEADER_SECONDS_MAX", 0.3)
    with connected(address) as connection:
        connection.sendall(ALIVE)
        assert connection.recv(65_536)
        ended = threading.Event()

        def drip() -> None:
            while not ended.wait(0.02):
                send(connection, b"\r\n")

        thread = threading.Thread(target=drip)
        thread.start()
        assert read_all(connection) == b""
        ended.set()
        thread.join()


def test_a_connection_that_asks_no_more_is_closed_after_the_idle_time(app: FastAPI) -> None:
    with served(app, api_idle_seconds=1) as address, connected(address) as connection:
        connection.sendall(ALIVE)
        began = time.monotonic()
        assert read_all(connection).startswith(b"HTTP/1.1 200")
        assert 0.5 < time.monotonic() - began < 5


def test_a_request_after_a_pause_is_answered(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for a header begins with its first byte."""
    monkeypatch.setattr(http_limits, "HEADER_SECONDS_MAX", 0.2)
    with connected(address) as connection:
        for _ in range(2):
            connection.sendall(ALIVE)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
            threading.Event().wait(0.4)


def test_an_address_has_so_many_connections_and_others_have_theirs(app: FastAPI) -> None:
    with served(app, api_connections_per_address=3) as address, contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connected(address)).sendall(ALIVE)
        refused = stack.enter_context(connected(address))
        send(refused, ALIVE)
        answer = read_all(refused)
        assert told(answer) == (503, "too-many-connections")
        assert re.search(rb"Retry-After: \d", answer)
        other = stack.enter_context(connected(address, "127.0.0.2"))
        other.sendall(ALIVE)
        assert other.recv(65_536).startswith(b"HTTP/1.1 200")


def test_when_all_are_answered_a_further_connection_is_refused(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "STRANGERS_AT_ONCE", 0)
    monkeypatch.setattr(http_limits, "STRANGERS_PER_SECOND", 1)
    with served(app, api_connections=3) as address, contextlib.ExitStack() as stack:
        for number in (2, 3, 4):
            stack.enter_context(connected(address, f"127.0.0.{number}")).sendall(ALIVE)  # it waits for its turn
        refused = stack.enter_context(connected(address, "127.0.0.5"))
        assert told(read_all(refused)) == (503, "too-many-connections")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", ALIVE, POST + b"Content-Length: 9\r\n\r\n{"])
def test_connections_that_ask_nothing_keep_nobody_out(app: FastAPI, sent: bytes) -> None:
    sent = sent.replace(b"Bearer shop", b"Bearer nobody")
    with served(app, api_connections=20, api_connections_per_address=5) as address, contextlib.ExitStack() as stack:
        person = stack.enter_context(connected(address, "127.0.0.9"))
        assert is_answered(person)
        for number in range(40):
            silent = stack.enter_context(connected(address, f"127.0.0.{10 + number // 5}"))
            send(silent, sent)
            if sent.endswith((b"\r\n\r\n", b"{")):
                silent.recv(65_536)
        for _ in range(3):
            another = stack.enter_context(connected(address, "127.0.0.3"))
            assert is_answered(another)
        assert is_answered(person), "an address with few connections keeps them"


def test_connections_are_shown(app: FastAPI) -> None:
    with served(app) as address, a_client(address, "vera") as vera:
        page = vera.get("/metrics").text
    assert float(re.findall(r"^oldhost_sync_api_connections (\S+)", page, re.MULTILINE)[0]) >= 1


def test_requests_in_a_row_are_answered_in_their_order_up_to_a_limit(address: str) -> None:
    with connected(address) as connection:
        connection.sendall(ALIVE * 10)
        answers = b""
        while answers.count(b'{"status":"ok"}') < 10:
            answers += connection.recv(65_536)
        assert answers.count(b"HTTP/1.1 200") == 10
        send(connection, ALIVE * 1_000)
        assert read_all(connection).count(b"HTTP/1.1 200") <= http_limits.PIPELINED_MAX + 1


@pytest.mark.parametrize(
    "host",
    [
        b"",
        b"Host: \r\n",
        b"Host: x\r\nHost: y\r\n",
        b"Host: a b\r\n",
        b"Host: x/y\r\n",
        b"Host: u@x\r\n",
        b"Host: x:y\r\n",
        b"Host: x:99999\r\n",
        b"Host: .\r\n",
        b"Host: x..y\r\n",
        b"Host: [::::]\r\n",
        b"Host: [1.2.3.4]\r\n",
    ],
    ids=["none", "empty", "two", "blank", "path", "user", "port", "high port", "dot", "dots", "no IPv6", "IPv4"],
)
def test_a_host_header_that_names_no_host_is_a_400(address: str, host: bytes) -> None:
    with connected(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n" + host + b"\r\n")
        assert told(read_all(connection)) == (400, "bad-host")


@pytest.mark.parametrize("host", [b"sync.example.com:8000", b"[::1]:8000", b"10.0.0.7", b"my_host", b"x.example."])
def test_a_host_header_with_a_name_or_address_is_read(address: str, host: bytes) -> None:
    with connected(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 200")


def test_what_is_no_http_is_a_400(address: str) -> None:
    with connected(address) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        assert told(read_all(connection)) == (400, "not-http")


def test_who_takes_nothing_of_its_answers_is_cut_off(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "UNREAD_SECONDS_MAX", 0.3)
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer shop\r\n\r\n"
    with served(app, api_connections_per_address=1) as address, connected(address) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        for _ in range(60):
            send(connection, ask * 10)
        deadline = time.monotonic() + 20
        answer = b""
        while not answer.startswith(b"HTTP/1.1 200"):  # its place is free again
            assert time.monotonic() < deadline
            with connected(address) as other:
                send(other, ALIVE)
                answer = other.recv(65_536)


def test_requests_that_nobody_waits_for_any_more_keep_no_probe_of_the_same_address_waiting(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "STRANGERS_PER_SECOND", 1)  # else the storm would have to be large
    monkeypatch.setattr(http_limits, "STRANGERS_AT_ONCE", 5)
    monkeypatch.setattr(http_limits, "STRANGER_WAIT_SECONDS_MAX", 0.3)
    with served(app) as address:
        for _ in range(60):
            with connected(address) as abandoned:
                abandoned.sendall(ALIVE)
        with connected(address) as probe:
            began = time.monotonic()
            probe.sendall(ALIVE)
            assert probe.recv(65_536).startswith(b"HTTP/1.1 200")
    assert time.monotonic() - began < 10


def test_strangers_are_answered_at_a_pace_and_keep_nobody_else_from_writing(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "STRANGERS_AT_ONCE", 5)
    monkeypatch.setattr(http_limits, "STRANGERS_PER_SECOND", 20)
    ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with served(app) as address:

        def probe(_number: int) -> bytes:
            with connected(address, "127.0.0.2") as connection:
                connection.sendall(ask)
                return read_all(connection)

        began = time.monotonic()
        with ThreadPoolExecutor(20) as threads:
            probes = threads.map(probe, range(20))
            with connected(address) as other:
                other.sendall(ask)
                assert read_all(other).startswith(b"HTTP/1.1 200")
            beside = time.monotonic() - began
            assert all(answer.startswith(b"HTTP/1.1 200") for answer in probes)
    assert time.monotonic() - began >= 15 / 20
    assert beside < time.monotonic() - began
