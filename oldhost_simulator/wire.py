"""OldHost's requests and answers: HTTP/1.1 from bytes, and the operation or question in it. Pure; no socket here.

Only what the protocol (docs/protocol.md) needs: a request line, headers, a body of known length. A request that can't
be framed (no length, an endless head) is answered as malformed and ends its connection, because the start of the next
one is unknown. Malformed is also one without a nonce, that is no JSON, over 64 KiB, or lacks a field of an operation.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NoReturn

from oldhost_simulator.limits import (
    BODY_BYTES_MAX,
    DISCARDED_BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    NESTING_MAX,
    NONCE_DIGITS_MAX,
)

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    422: "Unprocessable Content",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


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


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and JSON body; `retry_after` in it is repeated in the header of that name, in whole seconds."""

    status: int
    body: Mapping[str, Any]


def encode(answer: Answer, *, last: bool = False, version: str = "1.1", length: bool = True) -> bytes:
    """The answer on the wire; `last`: it announces that the connection ends.

    Another `version`, and no `length` (the end of the connection is the end of the body): for a host that behaves
    oddly.
    """
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


def encode_text(status: int, text: str) -> bytes:
    """An answer with any status and any body, as other software gives."""
    body = text.encode()
    head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Other')}\r\nContent-Type: text/plain\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body


CONNECTION_IN_USE: Final = encode(Answer(503, {"error": "connection_in_use"}), last=True)


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

SYNC_PATH: Final = "/oldhost/sync"
ASK_PATH: Final = "/oldhost/expected-nonce"

_TEXTS: Final = ("entity_type", "entity_id", "event_type")
_PRESENT: Final = ("event_id", "idempotency_key")
_OWN_FIELDS: Final = frozenset({*_TEXTS, *_PRESENT, "payload", "unit_id"})


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request. `nonce` and `body` are set on a sync without a `problem`; times are epoch seconds."""

    kind: Literal["sync", "ask", "other"]
    received_at: float
    connection: int
    problem: str | None = None
    nonce: int | None = None
    body: dict[str, Any] | None = None
    raw_sha256: str | None = None


class MalformedError(Exception):
    """The request is malformed; a retry is useless."""


def parse_call(request: Request, received_at: float, connection: int, *, check_operations: bool = True) -> Call:
    """Never raises: an invalid request is a call with a `problem`."""
    if request.path == ASK_PATH and request.method == "GET":
        return Call("ask", received_at, connection, problem=request.problem)
    if request.path != SYNC_PATH or request.method != "POST":
        problem = request.problem or f"no such request: {request.method[:16]} {request.path[:80]}"
        return Call("other", received_at, connection, problem=problem)
    if request.problem is not None:
        return Call("sync", received_at, connection, problem=request.problem)
    try:
        nonce = _nonce(request.nonces)
        body = _json_object(request.body)
        if check_operations:
            _check_operation(body)
    except MalformedError as error:
        return Call("sync", received_at, connection, problem=str(error))
    return Call("sync", received_at, connection, None, nonce, body, hashlib.sha256(request.body).hexdigest())


def _nonce(values: tuple[str, ...]) -> int:
    if not values:
        raise MalformedError("no X-Nonce header")
    if len(values) > 1:
        raise MalformedError("more than one X-Nonce header")
    text = values[0]
    if not (text.isascii() and text.isdigit() and len(text) <= NONCE_DIGITS_MAX):
        raise MalformedError("X-Nonce is no whole number")
    return int(text)


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw, parse_constant=_no_such_number)
    except (ValueError, RecursionError):
        raise MalformedError("the body is no JSON") from None
    if not isinstance(body, dict):
        raise MalformedError("the body is no JSON object")
    if raw.count(b"[") + raw.count(b"{") > NESTING_MAX and _depth(body) > NESTING_MAX:
        raise MalformedError("the body is nested too deeply")
    return body


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return depth


def _no_such_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _check_operation(body: dict[str, Any]) -> None:
    for name in _TEXTS:
        value = body.get(name)
        if not isinstance(value, str) or not value:
            raise MalformedError(f"the operation's {name} is no text")
    for name in _PRESENT:
        if _is_missing(body.get(name)):
            raise MalformedError(f"the operation has no {name}")
    payload = body.get("payload")
    if not isinstance(payload, dict):
        raise MalformedError("the operation's payload is no object")
    if body["entity_type"] == "unit":
        _check_unit(body, payload)


def _check_unit(body: dict[str, Any], payload: dict[str, Any]) -> None:
    if _is_missing(body.get("unit_id")):
        raise MalformedError("an operation on a unit has no unit_id")
    for name, value in payload.items():
        if name not in _OWN_FIELDS and (name not in body or body[name] != value):
            raise MalformedError(f"an operation on a unit has its payload's {name[:80]} not at the top level")


def _is_missing(value: Any) -> bool:
    return value is None or value == ""
