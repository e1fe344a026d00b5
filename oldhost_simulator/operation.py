"""Parses a request: an operation with its nonce, a question for the expected nonce, or something invalid.

Pure. Malformed, by docs/protocol.md, is a request with "no nonce, not JSON, over 64 KiB": all but the length is checked
here (the length in `wire.py`), and so are the fields of the section "The operation".
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

from oldhost_simulator.limits import NESTING_MAX, NONCE_DIGITS_MAX
from oldhost_simulator.wire import Request

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
