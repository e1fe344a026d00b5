"""One HTTP connection to a host that speaks OldHost's protocol."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

from oldhost_sync.drivers.contract import LOCAL, Peer
from oldhost_sync.drivers.events import (
    Ambiguous,
    Answer,
    Applied,
    Closing,
    ConnectionEnd,
    Event,
    Malformed,
    Rejected,
    Said,
    Told,
    Unlisted,
)
from oldhost_sync.drivers.http.oldhost import encode_ask, encode_sync, read_answer, read_ask, said_by, told_by_header
from oldhost_sync.drivers.http.refusal import meets_all, no_service
from oldhost_sync.drivers.http.response import Response, ResponseReader

# Statuses that say yes. Not 202, which says that it is not done yet.
DONE = frozenset({HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT})


class HttpWire:
    """See `Wire`."""

    def __init__(self, peer: Peer = LOCAL) -> None:
        self._peer = peer
        self._reader = ResponseReader()
        self._nonce: int | None = None  # of the operation on the wire; None: a question
        self.said: Said | None = None

    def greet(self) -> bytes:
        return b""

    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:  # noqa: ARG002 - OldHost's are not dated
        self._nonce, self._reader, self.said = number, ResponseReader(), None
        return encode_sync(number, body, self._peer)

    def ask_expected(self, at_ms: int) -> bytes:  # noqa: ARG002 - as above
        self._nonce, self._reader, self.said = None, ResponseReader(), None
        return encode_ask(self._peer)

    def ask_outcome(self, number: int, key: str) -> bytes:
        raise NotImplementedError("OldHost can't be asked for an outcome")

    def idle(self) -> bytes:
        return b""

    def bye(self) -> bytes:
        return b""

    def feed(self, data: bytes) -> list[Event]:
        response = self._reader.feed(data)
        return [] if response is None else self.read(response)

    def end(self) -> list[Event]:
        return self.read(self._reader.end())

    def read(self, response: Response) -> list[Event]:
        """What a complete response says."""
        event = self._told(response) if self._nonce is None else self._answer(response, self._nonce)
        ending = response.ending
        return [event] if ending is ConnectionEnd.NONE else [event, Closing(ending)]

    def _told(self, response: Response) -> Told:
        told = read_ask(response.status, response.body)
        if isinstance(told, Ambiguous):
            return no_service(response)
        return told_by_header(told, response.seconds_asked)

    def _answer(self, response: Response, nonce: int) -> Answer:
        answer = told_by_header(read_answer(response.status, response.body, nonce), response.seconds_asked)
        if not isinstance(answer, Applied | Rejected | Malformed):
            self.said = said_by(response.status, response.body, nonce)
        if isinstance(answer, Unlisted):
            says_yes = response.status in DONE and not response.body.strip()
            return replace(answer, says_yes=says_yes, refuses=no_service(response) if meets_all(response) else None)
        return answer
