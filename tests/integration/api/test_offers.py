"""What a client offers and the server declines changes nothing: one request, one answer, and a body is no request.

The requests are what curl 7.88, Java 17's HttpClient, Node.js 20 and Go 1.19 send, recorded from them.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence

import pytest
from sqlalchemy import Engine

from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from tests.integration.api.conftest import HOST, TOKENS, ScriptedWriter, served
from tests.integration.api.test_connections import NO_DATABASE, connected, read_all, told

CHANGE = b'{"entity_type":"unit","entity_id":"D-4","event_type":"checked_out","payload":{"by":"raw"}}'
# A body that is a request: a server that took it for one would record a change more.
SMUGGLED = (
    b"POST /api/units/D-5/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer shop\r\n"
    b'Content-Type: application/json\r\nContent-Length: 18\r\n\r\n{"status":"Dirty"}'
)
LAST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAA\r\n"
OFFERS = {
    "nothing": b"",
    "java-and-curl-h2c": H2C,
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "several": b"Connection: keep-alive, upgrade\r\nUpgrade: TLS/1.2, HTTP/3\r\n",
    "upgrade-alone": b"Upgrade: h2c\r\n",
    "connection-alone": b"Connection: Upgrade\r\n",
    "expect": b"Expect: 100-continue\r\n",
    "java-h2c-and-expect": H2C + b"Expect: 100-Continue\r\n",
    "unknown-expect": b"Expect: a-miracle\r\n",
}


def a_post(
    headers: bytes, body: bytes, *, chunked: bool, version: bytes = b"1.1", key: bytes = b""
) -> tuple[bytes, bytes]:
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    key = b"Idempotency-Key: %b\r\n" % key if key else b""
    head = b"POST /api/changes HTTP/%b\r\nHost: x\r\nAuthorization: Bearer shop\r\n%b%b" % (version, key, headers)
    head += b"Content-Type: application/json\r\n%b\r\n\r\n" % framing
    half = len(body) // 2
    pieces = [b"%x\r\n%b\r\n" % (len(each), each) for each in (body[:half], body[half:], b"")]
    return head, b"".join(pieces) if chunked else body


def statuses(answers: bytes) -> list[int]:
    """Of all answers, without the interim ones."""
    found = [int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)]
    return [each for each in found if each >= 200]


def ask(address: str, segments: Sequence[bytes], *, ends: bool = False) -> bytes:
    """All answers to what is sent in these segments, each of which is read on its own. `ends`: the client then ends its
    side of the connection.
    """
    with connected(address) as connection:
        for segment in segments:
            with contextlib.suppress(OSError):
                connection.sendall(segment)
            another_request(address)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def another_request(address: str) -> None:
    """When it is answered, the server has read what other connections sent before."""
    with connected(address) as connection:
        connection.sendall(
            b"GET /api/none HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer shop\r\nConnection: close\r\n\r\n"
        )
        assert read_all(connection).startswith(b"HTTP/1.1 404")


def recorded(engine: Engine) -> list[tuple[str, str]]:
    """Entity and payload of each change."""
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT entity_id, payload FROM outbox_events ORDER BY id").all()
    return [(row.entity_id, row.payload) for row in rows]


CUTS = ("one segment", "header and body", "pieces")


@pytest.fixture(scope="module")
def strange_address() -> Iterator[str]:
    """Of a server without a database, for requests that must not get that far: they would be a 503."""
    database = Database(connect_for_api(NO_DATABASE))
    with served(create_app(Dependencies(HOST, TOKENS, database, ScriptedWriter()))) as address:
        yield address


@pytest.fixture(params=CUTS)
def cut(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def segments(cut: str, head: bytes, body: bytes, rest: bytes) -> list[bytes]:
    """What is sent, in segments. `rest`: what follows the request."""
    whole = head + body + rest
    if cut == "one segment":
        return [whole]
    if cut == "header and body":
        return [head, body, rest]
    return [whole[start : start + 97] for start in range(0, len(whole), 97)]


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_request_with_an_offer_is_answered_as_one_without(
    address: str, engine: Engine, cut: str, *, chunked: bool
) -> None:
    for name, offer in OFFERS.items():
        head, body = a_post(offer, CHANGE, chunked=chunked, key=name.encode())
        answers = ask(address, segments(cut, head, body, LAST))
        assert statuses(answers) == [202, 200], (name, answers)
    assert recorded(engine) == [("D-4", '{"by":"raw"}')] * len(OFFERS)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_body_is_not_read_as_a_request(address: str, engine: Engine, cut: str, *, chunked: bool) -> None:
    for name, offer in OFFERS.items():
        head, body = a_post(offer, SMUGGLED, chunked=chunked)
        answers = ask(address, segments(cut, head, body, LAST))
        assert statuses(answers) == [400, 200], (name, answers)
    assert recorded(engine) == []


def test_several_offers_in_one_connection_are_declined(address: str, engine: Engine, cut: str) -> None:
    one, body = a_post(H2C, CHANGE, chunked=True, key=b"one")
    two, body_two = a_post(H2C, CHANGE, chunked=False, key=b"two")
    answers = ask(
        address,
        segments(cut, one, body, two + body_two + b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + H2C + b"\r\n" + LAST),
    )
    assert statuses(answers) == [202, 202, 200, 200], answers
    assert len(recorded(engine)) == 2


@pytest.mark.parametrize("offer", [b"", H2C], ids=["nothing", "h2c"])
@pytest.mark.parametrize(
    ("framing", "status"),
    [
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        (b"Content-Length: 5\r\nContent-Length: 6", 400),
        (b"Content-Length: 5\r\nContent-Length: 5", 400),
        (b"Content-Length: 5, 5", 400),
        (b"Content-Length: +5", 400),
        (b"Content-Length: -1", 400),
        (b"Content-Length:", 400),
        (b"Content-Length : 5", 400),
        (b"Transfer-Encoding: identity", 501),
        (b"Transfer-Encoding: chunked, identity", 400),
        (b"Transfer-Encoding: xchunked", 501),
        (b"Transfer-Encoding: gzip, chunked", 501),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        (b"Transfer-Encoding : chunked", 400),
        (b"Transfer-Encoding:\x0bchunked", 400),
    ],
)
def test_a_body_of_doubtful_length_ends_the_connection(
    strange_address: str, offer: bytes, framing: bytes, status: int
) -> None:
    head = b"POST /api/changes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer shop\r\n" + offer + framing + b"\r\n\r\n"
    for cut in CUTS:
        answers = ask(strange_address, segments(cut, head, b"0\r\n\r\n", SMUGGLED))
        assert statuses(answers) == [status], answers


@pytest.mark.parametrize(
    ("line", "status", "kind"),
    [
        (b"POST /api/changes HTTP/2.0", 505, "bad-version"),
        (b"POST /api/changes HTTP/0.9", 505, "bad-version"),
        (b"POST /api/changes HTTP/1.2", 400, "not-http"),
        (b"POST /api/changes HTTP/3.0", 400, "not-http"),
        (b"POST /api/changes", 505, "bad-version"),
        (b"PRI * HTTP/2.0", 400, "not-http"),
        (b"CONNECT x:80 HTTP/1.1", 501, "no-tunnel"),
    ],
)
def test_what_is_not_served_is_refused_and_ends_the_connection(
    strange_address: str, line: bytes, status: int, kind: str
) -> None:
    head, body = a_post(b"", CHANGE, chunked=False)
    answers = ask(strange_address, [line + head[head.index(b"\r\n") :], body, SMUGGLED])
    assert statuses(answers) == [status], answers
    assert told(answers) == (status, kind)


def test_a_chunked_body_in_http_1_0_is_refused(address: str, engine: Engine, cut: str) -> None:
    answers = ask(address, segments(cut, *a_post(b"", CHANGE, chunked=True, version=b"1.0"), SMUGGLED))
    assert told(answers) == (501, "unknown-coding")
    assert recorded(engine) == []


def test_an_old_client_is_not_told_to_continue(address: str, engine: Engine) -> None:
    head, body = a_post(b"Expect: 100-continue\r\n", CHANGE, chunked=False, version=b"1.0")
    answers = ask(address, [head, body])
    assert answers.startswith(b"HTTP/1.1 202")
    assert len(recorded(engine)) == 1


def test_a_client_that_waits_is_told_to_continue(address: str) -> None:
    head, body = a_post(b"Expect: 100-continue\r\nConnection: close\r\n", CHANGE, chunked=False)
    with connected(address) as connection:
        connection.sendall(head)
        assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert statuses(read_all(connection)) == [202]


def test_a_client_that_is_refused_without_its_body_may_omit_it(address: str, engine: Engine) -> None:
    """Its next request would be taken for the body; so the connection ends, and it asks in another one."""
    head, _ = a_post(b"Expect: 100-continue\r\n", CHANGE, chunked=False)
    answers = ask(address, [head.replace(b"Bearer shop", b"Bearer nobody"), SMUGGLED])
    assert statuses(answers) == [401]
    assert b"connection: close" in answers.lower()
    assert recorded(engine) == []


def test_a_client_that_ends_its_side_gets_its_answer(address: str, engine: Engine, cut: str) -> None:
    for name, offer in OFFERS.items():
        head, body = a_post(offer, CHANGE, chunked=False, key=name.encode())
        answers = ask(address, segments(cut, head, body, b""), ends=True)
        assert statuses(answers) == [202], (name, answers)
    assert len(recorded(engine)) == len(OFFERS)


def test_a_client_that_ends_its_side_gets_all_its_answers_and_none_for_what_was_cut_short(
    address: str, engine: Engine
) -> None:
    whole = [head + body for head, body in (a_post(b"", CHANGE, chunked=False, key=b"%d" % n) for n in range(3))]
    head, body = a_post(b"", CHANGE, chunked=False, key=b"cut")
    for cut_short in (head[:40], head, head + body[:10]):
        answers = ask(address, [b"".join(whole) + cut_short], ends=True)
        assert statuses(answers) == [202] * 3, answers
    assert ask(address, [head + body[:10]], ends=True) == b""
    assert len(recorded(engine)) == 3


def test_a_client_that_ends_its_side_without_a_request_is_let_go(address: str) -> None:
    assert ask(address, [], ends=True) == b""
    assert ask(address, [b"GET / HT"], ends=True) == b""


CURL = {
    "--http2": "202",
    "--http2 --header Transfer-Encoding:chunked": "202",
    "--http2 --header Expect:100-continue": "202",
    "--header Expect:100-continue": "202",
    "--http1.0": "202",
    "--http1.0 --header Expect:100-continue": "202",
    "--header Connection:Upgrade --header Upgrade:websocket": "202",
    "--http2-prior-knowledge": "000",
}


def test_curl_records_one_change_whatever_it_offers(address: str, engine: Engine) -> None:
    headers = ["Authorization: Bearer shop", "Content-Type: application/json"]
    more = [option for header in headers for option in ("--header", header)]
    shown = ["--silent", "--max-time", "20", "--output", "/dev/null", "--write-out", "%{http_code}"]
    for options, status in CURL.items():
        command = ["curl", *shown, *options.split(), *more, "--data-binary", CHANGE.decode(), f"{address}/api/changes"]
        assert subprocess.run(command, check=False, capture_output=True, text=True).stdout == status, options
    assert len(recorded(engine)) == list(CURL.values()).count("202")


NODE = """
import http from 'node:http'
const [address, change] = process.argv.slice(1)
const head = {Authorization: 'Bearer shop', 'Content-Type': 'application/json'}
const first = await fetch(address, {method: 'POST', headers: head, body: change})
const offer = {...head, Connection: 'Upgrade', Upgrade: 'h2c'}
const second = await new Promise((done) => {
  const request = http.request(address, {method: 'POST', headers: offer}, (answer) => {
    answer.resume().on('end', () => done(answer.statusCode))
  })
  request.on('error', done)
  request.write(change.slice(0, 20))
  setImmediate(() => request.end(change.slice(20)))
})
console.log(first.status, second)
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_node_records_one_change_for_each_request(address: str, engine: Engine) -> None:
    command = ["node", "--input-type=module", "--eval", NODE, f"{address}/api/changes", CHANGE.decode()]
    told_by_node = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert told_by_node.stdout.split() == ["202", "202"], told_by_node.stderr
    assert len(recorded(engine)) == 2
