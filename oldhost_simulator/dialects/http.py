"""OldHost's requests and answers: HTTP/1.1 from bytes, and the operation or question in it. Pure; no socket here.

Only what the protocol (docs/protocol.md) needs: a request line, headers, a body of known length. A request that can't
be framed (no length, an endless head) is answered as malformed and ends its connection, because the start of the next
one is unknown. Malformed is also one without a nonce, that is no JSON, over 64 KiB, or lacks a field of an operation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from oldhost_simulator.call import Call, Kind, MalformedError, read_operation
from oldhost_simulator.dialects.dialect import Answer
from oldhost_simulator.limits import BODY_BYTES_MAX, DISCARDED_BODY_BYTES_MAX, HEAD_BYTES_MAX, NONCE_DIGITS_MAX
from oldhost_simulator.verdicts import (
    Applied,
    Banned,
    Busy,
    Expected,
    Gap,
    Malformed,
    Outcome,
    Ready,
    Rejected,
    Replay,
    Verdict,
)

SYNC_PATH: Final = "/oldhost/sync"
ASK_PATH: Final = "/oldhost/expected-nonce"

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    422: "Unprocessable Content",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_HTML: Final = b"<html><body>It works!</body></html>"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read whole. `problem`: why it is malformed as HTTP; `last`: its connection ends with it."""

    method: str
    path: str
    nonces: tuple[str, ...] = ()
    body: bytes = b""
    problem: str | None = None
    last: bool = False
    authorization: str | None = None


class Http:
    """See `Dialect`. `retry_after` of a body is repeated in the header of that name, in whole seconds."""

    schemes = "http", "https"
    greets = False
    expected = "expected_nonce"
    working = b"HTTP/1.1 102 Processing\r\n\r\n"

    def __init__(self) -> None:
        self.in_use = self.encode(Answer(503, {"error": "connection_in_use"}), last=True)

    def reader(self, connection: int, *, check_operations: bool) -> CallReader:
        return CallReader(connection, check_operations=check_operations)

    def lacks(self, call: Call, authorization: str) -> bool:
        return call.authorization != authorization

    def denied(self, *, last: bool) -> tuple[bytes, bool]:
        return self.other(401, "no valid credentials"), last

    def answer(self, verdict: Verdict) -> Answer:
        status, body = _said(verdict)
        told = {name: value for name, value in body.items() if value is not None} if None in body.values() else body
        return Answer(status, told)

    def encode(self, answer: Answer, *, last: bool = False) -> bytes:
        return _encode(answer, last=last)

    def encode_old(self, answer: Answer, *, length: bool) -> bytes:
        return _encode(answer, last=True, version="1.0", length=length)

    def other(self, status: int, text: str) -> bytes:
        body = text.encode()
        head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Other')}\r\nContent-Type: text/plain\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body

    def garbage(self, kind: str, call: Call) -> tuple[bytes, bool]:
        nonce = (call.nonce or 0) + 1
        replies: Mapping[str, bytes] = {
            "bytes": b"\x00\xff\x13\x37OLDHOST ABEND 0C7\r\n\r\n\x00\x00",
            "not_json": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(_HTML)
            + _HTML,
            "status": self.encode(Answer(500, {"error": "internal"})),
            "other_nonce": self.encode(Answer(200, {"nonce": nonce, "expected_nonce": nonce + 1})),
        }
        return replies[kind], kind != "bytes"


def _said(verdict: Verdict) -> tuple[int, dict[str, Any]]:
    """Status and body; what is None in it is not said."""
    match verdict:
        case Applied(nonce, expected):
            return 200, {"nonce": nonce, "expected_nonce": expected}
        case Rejected(_, reason, expected):
            return 422, {"error": "rejected", "reason": reason, "expected_nonce": expected}
        case Expected(expected) | Ready(expected):
            return 200, {"expected_nonce": expected}
        case Outcome(fate, nonce):
            return 200, {"outcome": fate, "nonce": nonce}
    return _refused(verdict)


def _refused(verdict: Gap | Replay | Banned | Busy | Malformed) -> tuple[int, dict[str, Any]]:
    match verdict:
        case Gap(_, expected):
            return 400, {"error": "nonce_gap", "expected_nonce": expected}
        case Replay(_, expected, retry_after):
            return 400, {"error": "nonce_replay", "expected_nonce": expected, "retry_after": retry_after}
        case Banned(retry_after):
            return 403, {"error": "banned", "retry_after": retry_after}
        case Busy(retry_after):
            return 503, {"error": "busy", "retry_after": retry_after}
        case Malformed(reason):
            return 400, {"error": "malformed", "reason": reason}


def _encode(answer: Answer, *, last: bool, version: str = "1.1", length: bool = True) -> bytes:
    body = json.dumps(answer.body).encode()
    head = [f"HTTP/{version} {answer.status} {_REASONS[answer.status]}", "Content-Type: application/json"]
    retry_after = answer.body.get("retry_after")
    if isinstance(retry_after, int | float) and math.isfinite(retry_after):
        head.append(f"Retry-After: {math.ceil(retry_after)}")
    if last:
        head.append("Connection: close")
    if length:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join(head).encode("ascii") + b"\r\n\r\n" + body


class RequestReader:
    """Takes bytes as they arrive, returns requests when they are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._too_big: Request | None = None
        self._to_discard = 0
        self._broken = False

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_request(self) -> Request | None:
        """The next whole request, or None until there is one. After a request with `last` there is never another."""
        if self._broken:
            self._buffer.clear()
            return None
        if self._too_big is not None:
            return self._discard()
        return self._parse()

    def _parse(self) -> Request | None:
        while self._buffer.startswith(b"\r\n"):  # RFC 9112 2.2: an empty line before a request line is ignored
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > HEAD_BYTES_MAX:
            return self._break("the head is over 16 KiB") if len(self._buffer) > HEAD_BYTES_MAX else None
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or words[2] not in {"HTTP/1.1", "HTTP/1.0"}:
            return self._break("no HTTP/1.1 request line")
        headers: dict[str, list[str]] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                return self._break("a header without a colon")
            headers.setdefault(name.lower(), []).append(value.strip())
        length = _body_length(headers)
        if isinstance(length, str):
            return self._break(length)
        last = words[2] == "HTTP/1.0" or "close" in ",".join(headers.get("connection", ())).lower()
        authorization = next(iter(headers.get("authorization", ())), None)
        head = Request(words[0], words[1], tuple(headers.get("x-nonce", ())), last=last, authorization=authorization)
        return self._take(head, end + 4, length)

    def _take(self, head: Request, start: int, length: int) -> Request | None:
        if length > DISCARDED_BODY_BYTES_MAX:
            return self._break("the body is over 64 KiB")
        if length > BODY_BYTES_MAX:
            self._too_big = replace(head, problem="the body is over 64 KiB")
            self._to_discard = length
            del self._buffer[:start]
            return self._discard()
        if len(self._buffer) < start + length:
            return None
        body = bytes(self._buffer[start : start + length])
        del self._buffer[: start + length]
        self._broken = head.last
        return replace(head, body=body)

    def _discard(self) -> Request | None:
        read = min(self._to_discard, len(self._buffer))
        del self._buffer[:read]
        self._to_discard -= read
        if self._to_discard:
            return None
        request, self._too_big = self._too_big, None
        self._broken = request is not None and request.last
        return request

    def _break(self, problem: str) -> Request:
        self._broken = True
        self._buffer.clear()
        return Request("", "", problem=problem, last=True)


def _body_length(headers: Mapping[str, list[str]]) -> int | str:
    """The body's length in bytes, or what is wrong."""
    if "transfer-encoding" in headers:
        return "a body without Content-Length"
    lengths = headers.get("content-length", ["0"])
    if any(length != lengths[0] for length in lengths):
        return "two different Content-Length headers"
    text = lengths[0]
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        return "Content-Length is no whole number"
    return int(text)


# ------------------------------------------------------------------------------------------------ what a request asks


class CallReader:
    """See `Reader`."""

    def __init__(self, connection: int, *, check_operations: bool) -> None:
        self._connection = connection
        self._check_operations = check_operations
        self._requests = RequestReader()
        self.feed = self._requests.feed

    def next_call(self, received_at: float) -> Call | None:
        request = self._requests.next_request()
        if request is None:
            return None
        return parse_call(request, received_at, self._connection, check_operations=self._check_operations)


def parse_call(request: Request, received_at: float, connection: int, *, check_operations: bool = True) -> Call:
    """Never raises: an invalid request is a call with a `problem`."""
    kind: Kind = "other"
    problem, nonce, body, sha256 = request.problem, None, None, None
    if request.path == ASK_PATH and request.method == "GET":
        kind = "ask"
    elif request.path != SYNC_PATH or request.method != "POST":
        problem = problem or f"no such request: {request.method[:16]} {request.path[:80]}"
    else:
        kind = "sync"
        if problem is None:
            try:
                nonce = _nonce(request.nonces)
                body, sha256 = read_operation(request.body, check=check_operations)
            except MalformedError as error:
                problem, nonce = str(error), None
    return Call(
        kind,
        received_at,
        connection,
        problem=problem,
        nonce=nonce,
        body=body,
        raw_sha256=sha256,
        last=request.last,
        authorization=request.authorization,
    )


def _nonce(values: tuple[str, ...]) -> int:
    if not values:
        raise MalformedError("no X-Nonce header")
    if len(values) > 1:
        raise MalformedError("more than one X-Nonce header")
    text = values[0]
    if not (text.isascii() and text.isdigit() and len(text) <= NONCE_DIGITS_MAX):
        raise MalformedError("X-Nonce is no whole number")
    return int(text)


HTTP: Final = Http()
