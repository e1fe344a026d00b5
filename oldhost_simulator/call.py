"""A request as the host judges it, whatever the dialect that it came in."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, TypeAlias

from oldhost_simulator.limits import NESTING_MAX

Kind: TypeAlias = Literal["sync", "ask", "outcome", "logon", "idle", "bye", "other"]

_TEXTS: Final = ("entity_type", "entity_id", "event_type")
_PRESENT: Final = ("event_id", "idempotency_key")
_OWN_FIELDS: Final = frozenset({*_TEXTS, *_PRESENT, "payload", "unit_id"})


@dataclass(frozen=True, slots=True)
class Call:
    """`nonce` (as the client wrote it) and `body` are set on a sync without a `problem`; times are epoch seconds.

    `nonce` or `key` of an outcome: of which operation. `last`: its connection ends with it.
    """

    kind: Kind
    received_at: float
    connection: int
    problem: str | None = None
    nonce: int | None = None
    body: dict[str, Any] | None = None
    raw_sha256: str | None = None
    key: str | None = None
    last: bool = False
    authorization: str | None = None


class MalformedError(Exception):
    """The request is malformed; a retry is useless."""


def read_operation(raw: bytes, *, check: bool) -> tuple[dict[str, Any], str]:
    """The operation, and its bytes' hash. `check`: it must have an operation's fields. Raises MalformedError."""
    body = _json_object(raw)
    if check:
        _check_operation(body)
    return body, hashlib.sha256(raw).hexdigest()


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
