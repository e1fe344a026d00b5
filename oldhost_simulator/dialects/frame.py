"""Frames (docs/frame-protocol.md): a length of four bytes, a line of JSON, and behind an operation's line its body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from oldhost_simulator.call import Call, Kind, MalformedError, read_operation
from oldhost_simulator.dialects.dialect import Answer
from oldhost_simulator.limits import BODY_BYTES_MAX, FRAME_BYTES_MAX, NONCE_DIGITS_MAX
from oldhost_simulator.verdicts import Verdict

LENGTH_BYTES: Final = 4
VERSION: Final = 1
# What differs from the verdict's own name in lower case.
_TYPES: Final[Mapping[str, str]] = {"Replay": "used"}
_KINDS: Final[Mapping[str, Kind]] = {
    "operation": "sync",
    "expected": "ask",
    "outcome": "outcome",
    "logon": "logon",
    "idle": "idle",
    "bye": "bye",
}


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def _of(head: Mapping[str, Any]) -> bytes:
    return frame(json.dumps(head, separators=(",", ":")).encode())


class Frames:
    """See `Dialect`. Its answers have no status."""

    schemes = "tcp", "tls"
    greets = True
    expected = "expected"
    in_use = _of({"type": "in_use", "last": True})
    working = _of({"type": "working"})

    def reader(self, connection: int, *, check_operations: bool) -> FrameReader:
        return FrameReader(connection, check_operations=check_operations)

    def lacks(self, call: Call, authorization: str) -> bool:
        return call.kind == "logon" and call.authorization != authorization

    def denied(self, *, last: bool) -> tuple[bytes, bool]:  # noqa: ARG002 - it is always the last
        return _of({"type": "denied", "last": True}), True

    def answer(self, verdict: Verdict) -> Answer:
        name = type(verdict).__name__
        said = {"nonce": "number"}
        own = {said.get(field.name, field.name): getattr(verdict, field.name) for field in fields(verdict)}
        told = {field: value for field, value in own.items() if value is not None}
        return Answer(0, {"type": _TYPES.get(name, name.lower()), **told})

    def encode(self, answer: Answer, *, last: bool = False) -> bytes:
        return _of({**answer.body, "last": True} if last else answer.body)

    def encode_old(self, answer: Answer, *, length: bool) -> bytes:  # noqa: ARG002 - a frame always has one
        return self.encode(answer, last=True)

    def other(self, status: int, text: str) -> bytes:  # noqa: ARG002 - a frame has none
        return frame(text.encode())

    def garbage(self, kind: str, call: Call) -> tuple[bytes, bool]:
        number = (call.nonce or 0) + 1
        replies: Mapping[str, bytes] = {
            "bytes": b"\x00\xff\x13\x37OLDHOST ABEND 0C7\r\n\r\n\x00\x00",
            "not_json": frame(b"<html><body>It works!</body></html>"),
            "status": _of({"type": "internal"}),
            "other_nonce": _of({"type": "applied", "number": number, "expected": number + 1}),
        }
        return replies[kind], kind != "bytes"


class FrameReader:
    """See `Reader`."""

    def __init__(self, connection: int, *, check_operations: bool) -> None:
        self._connection = connection
        self._check_operations = check_operations
        self._buffer = bytearray()
        self._broken = False

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_call(self, received_at: float) -> Call | None:
        if self._broken or len(self._buffer) < LENGTH_BYTES:
            return None
        end = LENGTH_BYTES + int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
        call = Call("other", received_at, self._connection)
        if not LENGTH_BYTES < end <= LENGTH_BYTES + FRAME_BYTES_MAX:
            self._broken = True
            return replace(call, problem="a frame of that length", last=True)
        if len(self._buffer) < end:
            return None
        content = bytes(self._buffer[LENGTH_BYTES:end])
        del self._buffer[:end]
        return self._read(call, content)

    def _read(self, call: Call, content: bytes) -> Call:
        """Never raises: an invalid request is a call with a `problem`."""
        line, _, body = content.partition(b"\n")
        head = _json_object(line)
        kind = _KINDS.get(str(head.get("type")))
        if kind is None:
            return replace(call, problem="no such request")
        call = replace(call, kind=kind)
        try:
            match kind:
                case "sync":
                    return self._operation(replace(call, nonce=_number(head.get("number"))), body)
                case "logon":
                    return _logon(call, head)
                case "outcome":
                    return _outcome(call, head)
        except MalformedError as error:
            return replace(call, problem=str(error))
        return call

    def _operation(self, call: Call, body: bytes) -> Call:
        if len(body) > BODY_BYTES_MAX:
            raise MalformedError("the body is over 64 KiB")
        operation, sha256 = read_operation(body, check=self._check_operations)
        return replace(call, body=operation, raw_sha256=sha256)


def _json_object(line: bytes) -> dict[str, Any]:
    """Empty if it is none."""
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return head if isinstance(head, dict) else {}


def _logon(call: Call, head: Mapping[str, Any]) -> Call:
    if head.get("version") != VERSION:
        raise MalformedError(f"only version {VERSION} is spoken here")
    authorization = head.get("authorization")
    return replace(call, authorization=authorization if isinstance(authorization, str) else None)


def _outcome(call: Call, head: Mapping[str, Any]) -> Call:
    key = head.get("key")
    number = _number(head["number"]) if "number" in head else None
    return replace(call, nonce=number, key=key if isinstance(key, str) else None)


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**NONCE_DIGITS_MAX:
        raise MalformedError("the number is no whole number")
    return value


FRAMES: Final = Frames()
