"""Answers that a test puts into the foreign host's mouth, and what each does with the operation's number.

The protocol's own answers are here, too; whatever a field leaves open is as docs/protocol.md has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any


class Effect(Enum):
    """What becomes of an operation: applied, refused with its number used up, or refused with the number still free."""

    APPLIES = "applied"
    REJECTS = "rejected"
    LEAVES = "left"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `fields`: its JSON body; `body`: other bytes instead. `effect`: on the operation; an ask has none.

    `delay`: seconds before the effect, as if the host worked for so long; `pause`: between the effect and the answer.
    `chunked`: the body comes in chunks, without its length. `stray`: bytes behind the answer. `cut`: only so many bytes
    of the answer leave, then the connection ends. `ends`: the connection ends behind the answer, which need not say so.
    `raw`: these bytes instead of an answer, and the connection's end. `resets`: no answer, and a reset; `silent`: no
    answer, for as long as the client waits.
    """

    status: int = 200
    fields: Mapping[str, Any] | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    effect: Effect = Effect.LEAVES
    delay: float = 0.0
    pause: float = 0.0
    version: str = "1.1"
    chunked: bool = False
    stray: bytes = b""
    cut: int | None = None
    ends: bool = False
    resets: bool = False
    silent: bool = False
    raw: bytes | None = None

    def to_bytes(self) -> bytes:
        if self.raw is not None:
            return self.raw
        body = self.body if self.body is not None else b"" if self.fields is None else json.dumps(self.fields).encode()
        lines = [f"HTTP/{self.version} {self.status} {_phrase(self.status)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if self.fields is not None:
            lines.append("Content-Type: application/json")
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in _pieces(body)) + b"0\r\n\r\n"
        elif self.status != HTTPStatus.NO_CONTENT:
            lines.append(f"Content-Length: {len(body)}")
        whole = "\r\n".join([*lines, "", ""]).encode() + body + self.stray
        return whole if self.cut is None else whole[: self.cut]


def applied(nonce: int, **more: Any) -> Answer:
    """`200` for this number; `more` changes the answer's own fields, such as its status."""
    fields = {"nonce": nonce, "expected_nonce": nonce + 1}
    return Answer(**{"fields": fields, "effect": Effect.APPLIES, **more})


def rejected(nonce: int, reason: str = "the host's own reason", **more: Any) -> Answer:
    """`422`, with the number used up."""
    fields = {"error": "rejected", "reason": reason, "expected_nonce": nonce + 1}
    return Answer(**{"status": 422, "fields": fields, "effect": Effect.REJECTS, **more})


def gap(expected: int, **more: Any) -> Answer:
    return Answer(**{"status": 400, "fields": {"error": "nonce_gap", "expected_nonce": expected}, **more})


def replay(expected: int, seconds: float, **more: Any) -> Answer:
    fields = {"error": "nonce_replay", "expected_nonce": expected, "retry_after": seconds}
    return Answer(**{"status": 400, "fields": fields, **more})


def banned(seconds: float | None, **more: Any) -> Answer:
    """`seconds`: what is told of its length; None: nothing."""
    told = {} if seconds is None else {"retry_after": seconds}
    headers = {} if seconds is None else {"Retry-After": str(round(seconds))}
    return Answer(**{"status": 403, "fields": {"error": "banned", **told}, "headers": headers, **more})


def busy(seconds: float = 1, **more: Any) -> Answer:
    return Answer(**{"status": 503, "fields": {"error": "busy", "retry_after": seconds}, **more})


def in_use() -> Answer:
    return Answer(503, {"error": "connection_in_use"}, ends=True)


def malformed(reason: str) -> Answer:
    return Answer(400, {"error": "malformed", "reason": reason})


def expects(nonce: Any, **more: Any) -> Answer:
    """The answer to an ask."""
    return Answer(**{"fields": {"expected_nonce": nonce}, **more})


def page(status: int, text: str = "<h1>not this way</h1>", **more: Any) -> Answer:
    """What a proxy, a firewall or a web server says in a page for people. `retry_after`: its header."""
    headers = {"Content-Type": "text/html"}
    if (seconds := more.pop("retry_after", None)) is not None:
        headers["Retry-After"] = str(seconds)
    return Answer(**{"status": status, "body": text.encode(), "headers": headers, **more})


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Odd"


def _pieces(body: bytes) -> list[bytes]:
    return [body[at : at + 7] for at in range(0, len(body), 7)]
