"""The foreign host itself: it keeps the protocol by itself, and says what a test tells it to."""

from __future__ import annotations

import ast
import json
import socket
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign_host.answer import Answer, Effect, applied, gap, page, rejected
from tests.foreign_host.host import ForeignHost, Request

FOREIGN = {"oldhost_sync", "oldhost_simulator", "activities", "workflows"}


class Caller:
    """A client by hand."""

    def __init__(self, host: ForeignHost) -> None:
        self.sock = socket.create_connection((host.address, host.port), timeout=5)

    def ask(self) -> tuple[int, dict[str, object]]:
        self.sock.sendall(b"GET /oldhost/expected-nonce HTTP/1.1\r\nHost: x\r\n\r\n")
        return self.hear()

    def write(self, nonce: int, body: bytes | None = None) -> None:
        operation = {"entity_type": "key", "entity_id": "1", "event_type": "e", "payload": {}}
        body = body if body is not None else json.dumps({**operation, "event_id": 7, "idempotency_key": "k"}).encode()
        head = f"POST /oldhost/sync HTTP/1.1\r\nHost: x\r\nX-Nonce: {nonce}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.sock.sendall(head.encode() + body)

    def sync(self, nonce: int, body: bytes | None = None) -> tuple[int, dict[str, object]]:
        self.write(nonce, body)
        return self.hear()

    def hear(self) -> tuple[int, dict[str, object]]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        while len(body) < length:
            body += self._more()
        return int(head.split()[1]), json.loads(body) if body.startswith(b"{") else {}

    def hear_to_the_end(self) -> bytes:
        data = b""
        while more := self.sock.recv(4096):
            data += more
        return data

    def _more(self) -> bytes:
        data = self.sock.recv(4096)
        assert data, "the host hung up"
        return data


@pytest.fixture
def host() -> Iterator[ForeignHost]:
    with ForeignHost() as host:
        yield host


@pytest.fixture
def caller(host: ForeignHost) -> Iterator[Caller]:
    caller = Caller(host)
    yield caller
    caller.sock.close()


def test_it_shares_no_code_with_the_product_or_the_simulator() -> None:
    for path in Path(__file__).parent.glob("*.py"):
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names.add((node.module or "").split(".")[0])
            elif isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
        assert names & FOREIGN == set(), path.name


def test_each_operation_is_applied_once_and_in_order(host: ForeignHost, caller: Caller) -> None:
    assert caller.ask() == (200, {"expected_nonce": 501})
    assert caller.sync(501) == (200, {"nonce": 501, "expected_nonce": 502})
    assert caller.sync(502) == (200, {"nonce": 502, "expected_nonce": 503})
    assert host.applied() == [7, 7]
    assert host.connected_at[1:] == []


def test_a_gap_uses_no_number_and_a_replay_bans(host: ForeignHost, caller: Caller) -> None:
    assert caller.sync(502) == (400, {"error": "nonce_gap", "expected_nonce": 501})
    assert caller.sync(500) == (400, {"error": "nonce_replay", "expected_nonce": 501, "retry_after": 900.0})
    assert caller.ask()[1]["error"] == "banned"
    assert (host.gaps, host.replays, host.applied()) == (1, 1, [])


def test_what_is_no_operation_is_malformed(host: ForeignHost, caller: Caller) -> None:
    assert caller.sync(501, b"[]")[1]["error"] == "malformed"
    assert caller.sync(501, b'{"entity_type":"unit","entity_id":"1"}')[1]["error"] == "malformed"
    assert host.expected == 501


def test_a_second_connection_is_turned_away(host: ForeignHost, caller: Caller) -> None:
    caller.ask()
    second = Caller(host)
    assert b"connection_in_use" in second.hear_to_the_end()
    second.sock.close()
    assert caller.ask()[0] == 200


def test_it_says_what_it_is_told_then_what_the_protocol_says(host: ForeignHost, caller: Caller) -> None:
    host.operations.extend([page(401), None, Answer(204, effect=Effect.APPLIES), lambda request: gap(request.expected)])
    assert [caller.sync(nonce)[0] for nonce in (501, 501, 502, 503, 503)] == [401, 200, 204, 400, 200]
    assert [one.effect.value for one in host.ended] == ["left", "applied", "applied", "left", "applied"]


def test_a_rejection_uses_the_number_unless_told_otherwise(host: ForeignHost, caller: Caller) -> None:
    host.operations.extend([lambda request: rejected(request.expected), rejected(502, effect=Effect.LEAVES)])
    assert [caller.sync(nonce)[0] for nonce in (501, 502, 502)] == [422, 422, 200]
    assert host.applied() == [7]


def test_every_third_operation_can_get_another_answer(host: ForeignHost, caller: Caller) -> None:
    host.every(3, lambda request: page(500))
    assert [caller.sync(nonce)[0] for nonce in (501, 502, 503, 503)] == [200, 200, 500, 200]


def test_chunks_stray_bytes_and_http_1_0_are_on_the_wire_as_told(host: ForeignHost, caller: Caller) -> None:
    host.operations.append(Answer(200, {"a": 1}, chunked=True, stray=b"STRAY", version="1.0"))
    caller.write(501)
    heard = caller.hear_to_the_end()
    assert heard.startswith(b"HTTP/1.0 200 OK\r\n")
    assert heard.endswith(b'\r\n7\r\n{"a": 1\r\n1\r\n}\r\n0\r\n\r\nSTRAY')


def test_what_was_read_is_carried_out_after_the_client_has_gone() -> None:
    works, may_end = threading.Event(), threading.Event()

    def work(request: Request) -> Answer:
        works.set()
        may_end.wait(5)
        return applied(501)

    with ForeignHost(operations=deque([work])) as host:
        caller = Caller(host)
        caller.write(501)
        assert works.wait(5)
        caller.sock.close()
        second = Caller(host)
        assert b"connection_in_use" in second.hear_to_the_end()
        second.sock.close()
        assert host.applied() == []
        may_end.set()
    assert (host.applied(), host.expected) == ([7], 502)
