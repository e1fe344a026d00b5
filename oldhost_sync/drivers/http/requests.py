"""How requests are written: where an operation's number stands, what is signed, and where the question is.

Without a method and a path of its mapping's, an operation goes where OldHost takes them. Everything that is not left
out comes from the host's options (`options.py`); the defaults are OldHost's, byte for byte.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from email.utils import formatdate

from oldhost_sync.drivers.contract import LOCAL, Peer

# A body that a mapping gave a method and a path (`mapping.Routed`).
_LINE = re.compile(rb"([A-Z]+) (/[!-~]*)\n")
_HOLE = "{number}"
OLDHOST_QUESTION = "/oldhost/expected-nonce"
PARTS = ("method", "path", "number", "date", "body")
ALGORITHMS = ("sha256", "sha512")


@dataclass(frozen=True, slots=True)
class NumberPlace:
    """`where`: "header" (`name`), "body" (the member `name` of its JSON object), or "path": in `{number}` of the
    mapping's path, or else its last segment.
    """

    where: str = "header"
    name: str = "X-Nonce"


@dataclass(frozen=True, slots=True)
class Date:
    """The time of each request. `form`: "seconds" since 1970, or "http"."""

    header: str
    form: str = "seconds"

    def text(self, at_ms: int) -> str:
        return str(at_ms // 1000) if self.form == "seconds" else formatdate(at_ms / 1000, usegmt=True)


@dataclass(frozen=True, slots=True)
class Signature:
    """An HMAC over the chosen parts, each of them behind a line feed but the first. A question has no number and no
    body: these parts are empty.
    """

    over: tuple[str, ...]
    header: str
    algorithm: str = "sha256"
    form: str = "hex"
    prefix: str = ""

    def value(self, key: bytes, parts: dict[str, bytes]) -> str:
        made = hmac.new(key, b"\n".join(parts[part] for part in self.over), getattr(hashlib, self.algorithm)).digest()
        return self.prefix + (made.hex() if self.form == "hex" else base64.b64encode(made).decode())


@dataclass(frozen=True, slots=True)
class Requests:
    """`question`: the path of the question for the number that the host expects next; empty: it can't be asked."""

    number: NumberPlace = NumberPlace()
    question: str = OLDHOST_QUESTION
    date: Date | None = None
    signature: Signature | None = None

    def operation(self, number: int, body: bytes, at_ms: int = 0, peer: Peer = LOCAL) -> bytes:
        """The complete request for one operation, the same bytes for the same arguments."""
        method, path = "POST", "/oldhost/sync"
        if line := _LINE.match(body):
            method, path, body = line[1].decode(), line[2].decode(), body[line.end() :]
        if self.number.where == "path" and _HOLE not in path:
            path = f"{path}/{_HOLE}"
        path = peer.base + path.replace(_HOLE, str(number))
        own = f"{self.number.name}: {number}\r\n" if self.number.where == "header" else ""
        if self.number.where == "body":
            body = _numbered(body, self.number.name, number)
        signed = self._signed(method, path, str(number), at_ms, body, peer)
        return (
            f"{method} {path} HTTP/1.1\r\n{_fields(peer)}{own}{signed}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode("ascii") + body

    def ask_expected(self, at_ms: int = 0, peer: Peer = LOCAL) -> bytes:
        """The question; it uses no number."""
        path = peer.base + self.question
        return (
            f"GET {path} HTTP/1.1\r\n{_fields(peer)}{self._signed('GET', path, '', at_ms, b'', peer)}"
            "Accept: application/json\r\n"
            "Cache-Control: no-cache\r\n\r\n"  # an answer from a cache would be too old to decide on
        ).encode("ascii")

    def _signed(self, method: str, path: str, number: str, at_ms: int, body: bytes, peer: Peer) -> str:
        """The header fields of date and signature."""
        date = self.date.text(at_ms) if self.date else ""
        fields = f"{self.date.header}: {date}\r\n" if self.date else ""
        if self.signature:
            texts = {"method": method, "path": path, "number": number, "date": date}
            parts = {name: text.encode("ascii") for name, text in texts.items()} | {"body": body}
            fields += f"{self.signature.header}: {self.signature.value(peer.sign_key, parts)}\r\n"
        return fields


OLDHOST = Requests()


def _fields(peer: Peer) -> str:
    """The header fields of each request."""
    credentials = f"Authorization: {peer.authorization}\r\n" if peer.authorization else ""
    return f"Host: {peer.authority}\r\n{credentials}"


def _numbered(body: bytes, name: str, number: int) -> bytes:
    """The JSON object with the number in it, in place of what the mapping put there. ValueError if it is none."""
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError("the number has no place in a body that is no JSON object")  # noqa: TRY004 - not our bug
    return json.dumps(fields | {name: number}, separators=(",", ":"), ensure_ascii=True).encode("ascii")
