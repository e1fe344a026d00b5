"""What a connection does for a driver that greets, lives and speaks unasked: a line of text is an event."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from oldhost_sync.drivers.capabilities import Capabilities, Expects
from oldhost_sync.drivers.contract import API, LOCAL, NOT_SHOWN, Garbled, Peer, Wire
from oldhost_sync.drivers.events import (
    Applied,
    Busy,
    Closing,
    ConnectionEnd,
    Event,
    Expected,
    Ready,
    Rejected,
    Reply,
    Said,
    Unlisted,
    Working,
    Write,
)
from oldhost_sync.oldhost.connection import IDLE_SECONDS, OldHostConnection
from oldhost_sync.oldhost.errors import ExchangeCut, Unreadable

EVENTS: dict[bytes, list[Event]] = {
    b"ready": [Ready(501, "north")],
    b"busy": [Busy(1.0)],
    b"working": [Working()],
    b"ping": [Write(b"pong\n")],
    b"applied": [Applied(502)],
    b"expected": [Expected(501)],
    b"last": [Expected(501), Closing(ConnectionEnd.ANNOUNCED)],
    b"twice": [Expected(501), Expected(502)],
}


class LineWire:
    said: Said | None = None

    def __init__(self) -> None:
        self._rest = b""
        self.greeted_at_ms = 0

    def greet(self, at_ms: int) -> bytes:
        self.greeted_at_ms = at_ms
        return b"hello\n"

    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        return b"do %d\n" % number

    def ask_expected(self, at_ms: int) -> bytes:
        return b"ask\n"

    def ask_outcome(self, number: int, key: str, at_ms: int) -> bytes:
        return b""

    def idle(self, at_ms: int) -> bytes:
        return b"alive\n"

    def bye(self, at_ms: int) -> bytes:
        return b"bye\n"

    def feed(self, data: bytes) -> list[Event]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines and lines[0].startswith(b"no"):
            return self.refused(lines[0].decode())
        try:
            return [event for line in lines for event in EVENTS[line]]
        except KeyError:
            raise Garbled("no such line") from None

    def refused(self, line: str) -> list[Event]:
        """As some drivers do, it keeps the beginning of what was said."""
        if line.startswith("nobody"):
            self.said = Said("code 0", line[:20])
            return [Unlisted("not listed")]
        return [Rejected(json.loads(line.removeprefix("no ")), consumed=True)]

    def end(self) -> list[Event]:
        raise Garbled("the end")


class LineDriver:
    api = API
    schemes = ("tcp",)
    answer_bytes_max = 64

    def __init__(self, *, speaks_unasked: bool = True) -> None:
        self.capabilities = Capabilities(expected=Expects.USED, speaks_unasked=speaks_unasked)

    def wire(self, peer: Peer) -> Wire:
        return LineWire()


class Host:
    """`now`: the connection's clock, which stands still."""

    def __init__(self, driver: LineDriver, peer: Peer = LOCAL) -> None:
        self.now = 0.0
        listener = socket.create_server(("127.0.0.1", 0))
        ours = socket.create_connection(listener.getsockname())
        self.theirs, _ = listener.accept()
        listener.close()
        self.theirs.settimeout(5)
        self.connection = OldHostConnection(ours, lambda: self.now, driver, peer)

    def says(self, line: bytes) -> None:
        self.theirs.sendall(line + b"\n")

    def hears(self) -> bytes:
        return self.theirs.recv(4096)

    def ask(self) -> Reply:
        self.connection.begin(self.connection.wire.ask_expected(0), timeout_seconds=5, while_waiting=lambda: None)
        return self.connection.finish(while_waiting=lambda: None)

    def is_alive(self) -> bool:
        """Once what was said has arrived."""
        until = time.monotonic() + 5
        sock = self.connection._socket
        while sock is not None and not arrived(sock):
            assert time.monotonic() < until
        return self.connection.is_alive()


def arrived(sock: socket.socket) -> bool:
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    return True


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host(LineDriver())
    yield host
    host.connection.close()
    host.theirs.close()


def test_a_greeting_is_answered_before_anything_is_asked(host: Host) -> None:
    host.says(b"ready")
    assert host.connection.greet(timeout_seconds=5, while_waiting=lambda: None) == Ready(501, "north")
    assert host.connection.ready == Ready(501, "north")
    assert host.hears() == b"hello\n"
    assert isinstance(host.connection.wire, LineWire)
    assert host.connection.wire.greeted_at_ms > 0, "a log-on may be signed or dated"


def test_a_greeting_that_is_not_ready_is_an_answer(host: Host) -> None:
    host.says(b"busy")
    assert host.connection.greet(timeout_seconds=5, while_waiting=lambda: None) == Busy(1.0)
    assert host.connection.ready == Ready()


def test_signs_of_work_end_no_exchange(host: Host) -> None:
    host.says(b"working\nworking\nexpected")
    assert host.ask() == Reply(Expected(501))


def test_what_the_driver_wants_written_during_an_exchange_is_written(host: Host) -> None:
    host.says(b"ping\nexpected")
    assert host.ask() == Reply(Expected(501))
    assert host.hears() == b"ask\npong\n"


def test_after_a_closing_nothing_more_is_written(host: Host) -> None:
    host.says(b"last")
    assert host.ask() == Reply(Expected(501), ConnectionEnd.ANNOUNCED)
    assert not host.connection.is_alive()


def test_an_answer_behind_the_answer_belongs_to_no_request(host: Host) -> None:
    host.says(b"twice")
    assert host.ask() == Reply(Expected(501), ConnectionEnd.STRAY)


def test_an_end_within_an_answer_is_never_an_answer(host: Host) -> None:
    host.theirs.sendall(b"expec")
    host.theirs.close()
    with pytest.raises(Unreadable, match="the end"):
        host.ask()


def test_an_end_instead_of_an_answer_is_an_end(host: Host) -> None:
    host.theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(ExchangeCut, match="instead of answering"):
        host.ask()


def test_more_bytes_than_a_driver_allows_are_no_answer(host: Host) -> None:
    host.theirs.sendall(b"working\n" * 9)
    with pytest.raises(Unreadable, match="longer than 64 bytes"):
        host.ask()


def test_what_comes_unasked_is_heard_and_answered_where_the_driver_says_so(host: Host) -> None:
    host.says(b"working\nping")
    assert host.is_alive()
    assert host.hears() == b"pong\n"


@pytest.mark.parametrize("line", [b"applied", b"nonsense"])
def test_an_answer_that_nobody_asked_for_ends_the_connection(host: Host, line: bytes) -> None:
    host.says(line)
    assert not host.is_alive()
    assert host.connection.ending is ConnectionEnd.STRAY


def test_a_driver_that_hears_nothing_unasked_is_not_fed() -> None:
    host = Host(LineDriver(speaks_unasked=False))
    host.says(b"working")
    assert not host.is_alive()
    host.theirs.close()


def test_a_sign_of_life_is_written_once_the_connection_was_idle_for_a_while(host: Host) -> None:
    host.connection.keep_alive()
    host.now = IDLE_SECONDS
    host.connection.keep_alive()
    host.connection.keep_alive()
    host.connection.close()
    assert host.hears() == b"alive\nbye\n"


def test_in_the_middle_of_an_exchange_nobody_says_good_bye(host: Host) -> None:
    host.connection.begin(b"do 7\n", timeout_seconds=5, while_waiting=lambda: None)
    host.connection.close()
    assert host.hears() == b"do 7\n"
    assert host.hears() == b""


@pytest.mark.parametrize(
    "line",
    [
        b'no "the-signing-key is wrong"',
        b'no "hunter2\\u002dhunter2"',
        b"nobody is d3JpdGVyOmh1bnRlcjItaHVudGVyMg== here",
    ],
)
def test_what_the_host_says_with_a_secret_of_ours_in_it_is_not_shown(line: bytes) -> None:
    host = Host(LineDriver(), Peer("h", "", "Basic d3JpdGVyOmh1bnRlcjItaHVudGVyMg==", b"the-signing-key"))
    host.says(line)
    reply = host.ask()
    assert NOT_SHOWN in {getattr(reply.event, "reason", ""), reply.said and reply.said.words}
    assert not any(part in str(reply) for part in ("signing", "hunter2", "d3Jp"))
    host.connection.close()
    host.theirs.close()


def test_what_the_host_says_without_a_secret_of_ours_is_shown(host: Host) -> None:
    host.says(b'no "the room is taken"')
    assert host.ask().event == Rejected("the room is taken", consumed=True)
