"""One connection to a host that speaks the frame protocol (docs/frame-protocol.md)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects
from oldhost_sync.drivers.contract import LOCAL, Garbled, Peer
from oldhost_sync.drivers.events import (
    Applied,
    Closing,
    ConnectionEnd,
    End,
    Event,
    Malformed,
    Rejected,
    Said,
    Working,
)
from oldhost_sync.drivers.frame.answers import Answers
from oldhost_sync.drivers.frame.frames import FrameReader, frame
from oldhost_sync.drivers.host_json import json_object

PROTOCOL_VERSION = 1


class Asked(Enum):
    NOTHING = auto()
    LOGON = auto()
    OPERATION = auto()
    EXPECTED = auto()
    OUTCOME = auto()


class FrameWire:
    """See `Wire`."""

    def __init__(self, capabilities: Capabilities, peer: Peer = LOCAL) -> None:
        self._capabilities = capabilities
        self._answers = Answers(capabilities)
        self._peer = peer
        self._reader = FrameReader()
        self._asked = Asked.NOTHING
        self._number = 0
        self._key = ""
        self._is_closing = False
        self.said: Said | None = None

    # ------------------------------------------------------------------------------------------------- requests

    def greet(self, at_ms: int) -> bytes:
        credentials = {"authorization": self._peer.authorization} if self._peer.authorization else {}
        return self._ask(Asked.LOGON, {"type": "logon", "version": PROTOCOL_VERSION, **credentials})

    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        self._number = number
        return self._ask(Asked.OPERATION, {"type": "operation", "number": number}, body)

    def ask_expected(self, at_ms: int) -> bytes:
        if self._capabilities.expected is Expects.NEVER:
            raise NotImplementedError("this host can't be asked for the number that it expects")
        return self._ask(Asked.EXPECTED, {"type": "expected"})

    def ask_outcome(self, number: int, key: str, at_ms: int) -> bytes:
        self._number, self._key = number, key
        match self._capabilities.outcome:
            case AskedOutcomes.NEVER:
                raise NotImplementedError("this host can't be asked for an outcome")
            case AskedOutcomes.LAST:
                of: dict[str, int | str] = {}
            case AskedOutcomes.BY_NUMBER:
                of = {"number": number}
            case AskedOutcomes.BY_ID:
                of = {"key": key}
        return self._ask(Asked.OUTCOME, {"type": "outcome", **of})

    def idle(self, at_ms: int) -> bytes:
        return frame({"type": "idle"})

    def bye(self, at_ms: int) -> bytes:
        return frame({"type": "bye"})

    def _ask(self, what: Asked, head: Mapping[str, Any], body: bytes = b"") -> bytes:
        self._asked, self._reader, self.said = what, FrameReader(), None
        return frame(head, body)

    # -------------------------------------------------------------------------------------------------- answers

    def feed(self, data: bytes) -> list[Event]:
        self._reader.feed(data)
        events: list[Event] = []
        while self._asked is not Asked.NOTHING and (content := self._reader.next_frame()) is not None:
            events += self._read(content)
        if self._asked is Asked.NOTHING and self._reader.has_begun and not self._is_closing:
            events += self._close(ConnectionEnd.STRAY)
        return events

    def end(self) -> list[Event]:
        if self._asked is not Asked.NOTHING:
            raise Garbled("closed before the answer was complete")
        return []

    def _read(self, content: bytes) -> list[Event]:
        """What a complete frame says."""
        fields = json_object(content)
        if fields == {"type": "working"}:
            return [Working()]
        event = self._event(content, fields)
        self._asked = Asked.NOTHING
        is_last = fields is not None and (fields.get("type") in ("in_use", "denied") or fields.get("last") is True)
        return [event, *self._close(ConnectionEnd.LAST)] if is_last else [event]

    def _event(self, content: bytes, fields: Mapping[str, Any] | None) -> End:
        match self._asked:
            case Asked.LOGON:
                return self._answers.ready(fields)
            case Asked.EXPECTED:
                return self._answers.expected(fields)
            case Asked.OUTCOME:
                return self._answers.outcome(fields, self._number, self._key)
        answer = self._answers.operation(fields, self._number)
        if not isinstance(answer, Applied | Rejected | Malformed):
            self.said = self._answers.said(content, fields, self._number, answer)
        return answer

    def _close(self, why: ConnectionEnd) -> list[Event]:
        self._is_closing = True
        return [Closing(why)]
