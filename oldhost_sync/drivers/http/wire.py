"""One HTTP connection to a host, whose requests and answers are OldHost's or as its options say."""

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
from oldhost_sync.drivers.http import oldhost
from oldhost_sync.drivers.http.oldhost import told_by_header
from oldhost_sync.drivers.http.patterns import Patterns
from oldhost_sync.drivers.http.refusal import meets_all, no_service
from oldhost_sync.drivers.http.requests import OLDHOST, Requests
from oldhost_sync.drivers.http.response import Response, ResponseReader

# Statuses that say yes. Not 202, which says that it is not done yet.
DONE = frozenset({HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT})


class HttpWire:
    """See `Wire`."""

    def __init__(self, peer: Peer = LOCAL, requests: Requests = OLDHOST, patterns: Patterns | None = None) -> None:
        self._peer = peer
        self._requests = requests
        self._answers = patterns or oldhost
        self._reader = ResponseReader()
        self._nonce: int | None = None  # of the operation on the wire; None: a question
        self.said: Said | None = None

    def greet(self, at_ms: int) -> bytes:
        return b""

    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        self._nonce, self._reader, self.said = number, ResponseReader(), None
        return self._requests.operation(number, body, at_ms, self._peer)

    def ask_expected(self, at_ms: int) -> bytes:
        self._nonce, self._reader, self.said = None, ResponseReader(), None
        if not self._requests.question:
            raise NotImplementedError("this host can't be asked for the number that it expects")
        return self._requests.ask_expected(at_ms, self._peer)

    def ask_outcome(self, number: int, key: str, at_ms: int) -> bytes:
        raise NotImplementedError("hosts that are reached by HTTP can't be asked for an outcome")

    def idle(self, at_ms: int) -> bytes:
        return b""

    def bye(self, at_ms: int) -> bytes:
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
        told = self._answers.read_ask(response.status, response.body)
        if isinstance(told, Ambiguous):
            return no_service(response)
        return told_by_header(told, response.seconds_asked)

    def _answer(self, response: Response, nonce: int) -> Answer:
        read = self._answers.read_answer(response.status, response.body, nonce)
        answer = told_by_header(read, response.seconds_asked)
        if not isinstance(answer, Applied | Rejected | Malformed):
            self.said = self._answers.said_by(response.status, response.body, nonce)
        if isinstance(answer, Unlisted):
            says_yes = response.status in DONE and not response.body.strip()
            return replace(answer, says_yes=says_yes, refuses=no_service(response) if meets_all(response) else None)
        return answer
