"""The one socket against a scripted peer: a plain server socket that the test drives step by step."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from oldhost_sync.drivers.capabilities import Capabilities
from oldhost_sync.drivers.events import ConnectionEnd, Event, Expected, Reply
from oldhost_sync.drivers.http.driver import HTTP
from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.connection import SLICE_SECONDS, Clock, OldHostConnection, _Wait
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.errors import (
    ConnectionClosed,
    ExchangeCut,
    InvariantViolated,
    NoConnection,
    NothingWritten,
    Silent,
    Unreadable,
)

REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
GOOD = b'HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{"expected_nonce":501}'
ANSWER = Expected(501)


class Peer:
    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(5)
        self.connection = Connector(Address(*self.listener.getsockname()), HTTP, time.monotonic).connect(lambda: None)
        self.accepted, _ = self.listener.accept()
        self.accepted.settimeout(5)

    def answer(self, *pieces: bytes, close: bool = False) -> threading.Thread:
        def run() -> None:
            self.accepted.recv(4096)
            for piece in pieces:
                self.accepted.sendall(piece)
            if close:
                self.accepted.close()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def exchange(self, timeout_seconds: float = 5, beat: Callable[[], None] = lambda: None) -> Reply:
        return exchange(self.connection, REQUEST, timeout_seconds, beat)


def exchange(connection: OldHostConnection, request: bytes, timeout_seconds: float, beat: Callable[[], None]) -> Reply:
    connection.wire.ask_expected(0)
    connection.begin(request, timeout_seconds=timeout_seconds, while_waiting=beat)
    return connection.finish(while_waiting=beat)


def connected(peer: Peer, clock: Clock) -> OldHostConnection:
    return OldHostConnection(socket.create_connection(peer.listener.getsockname()), clock, HTTP)


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.connection.close()
    peer.accepted.close()
    peer.listener.close()


def wait_until_dead(connection: OldHostConnection) -> None:
    until = time.monotonic() + 5
    while connection.is_alive():
        assert time.monotonic() < until


def test_one_exchange_after_another_on_one_socket(peer: Peer) -> None:
    for _ in range(3):
        thread = peer.answer(GOOD)
        assert peer.exchange() == Reply(ANSWER)
        thread.join()
    assert peer.connection.is_alive()


def test_an_answer_may_come_byte_by_byte(peer: Peer) -> None:
    thread = peer.answer(*(GOOD[index : index + 1] for index in range(len(GOOD))))
    assert peer.exchange().event == ANSWER
    thread.join()


@pytest.mark.parametrize("length", [0, 1, len(GOOD) - 1])
def test_a_cut_answer_is_ambiguous_and_closes_for_good(peer: Peer, length: int) -> None:
    thread = peer.answer(GOOD[:length], close=True)
    with pytest.raises(ExchangeCut):
        peer.exchange()
    thread.join()
    assert not peer.connection.is_alive()
    with pytest.raises(ConnectionClosed):
        peer.exchange()


def test_an_answer_has_a_limit(peer: Peer) -> None:
    thread = peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b"x" * HTTP.answer_bytes_max)
    with pytest.raises(Unreadable, match="longer than 65536 bytes"):
        peer.exchange()
    thread.join()


def test_a_driver_that_fails_proves_nothing_and_its_words_stay_inside(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: bytes) -> list[Event]:
        raise ValueError("Vera Secret")

    monkeypatch.setattr(peer.connection.wire, "feed", fail)
    thread = peer.answer(GOOD)
    with pytest.raises(Unreadable, match="its driver fails with ValueError"):
        peer.exchange()
    thread.join()


def test_what_a_driver_does_not_declare_proves_nothing(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer.connection, "_capabilities", Capabilities())
    thread = peer.answer(GOOD)
    with pytest.raises(Unreadable, match=r"Expected comes from a host whose expected number can't be asked"):
        peer.exchange()
    thread.join()
    assert not peer.connection.is_alive()


def test_trap_14_a_lost_answer_is_not_asked_for_again(peer: Peer) -> None:
    thread = peer.answer(close=True)
    with pytest.raises(ExchangeCut):
        peer.exchange()
    thread.join()
    peer.listener.settimeout(0.05)
    with pytest.raises(TimeoutError):
        peer.listener.accept()


def test_the_deadline_covers_the_whole_exchange_and_beats_go_on_meanwhile(peer: Peer) -> None:
    now = [0.0]
    beats: list[float] = []
    connection = connected(peer, lambda: now[0])

    def beat() -> None:
        beats.append(now[0])
        now[0] += 4.0

    with pytest.raises(ExchangeCut, match="its request timeout"):
        exchange(connection, REQUEST, 10, beat)
    assert beats == [0.0, 4.0, 8.0]
    assert not connection.is_alive()


def test_a_trickling_answer_does_not_stretch_the_deadline(peer: Peer) -> None:
    now, answer = [0.0], iter(b"HTTP/1.1 200 OK")
    connection = connected(peer, lambda: now[0])
    accepted, _ = peer.listener.accept()

    def trickle() -> None:
        now[0] += 6.0
        accepted.sendall(bytes([next(answer)]))

    with pytest.raises(ExchangeCut, match="its request timeout"):
        exchange(connection, REQUEST, 10, trickle)
    accepted.close()


def brief_exchange(
    connection: OldHostConnection, reply_seconds: float, meanwhile: Callable[[], None], beat: Callable[[], None]
) -> Reply:
    connection.begin(REQUEST, timeout_seconds=60, while_waiting=beat)
    meanwhile()
    return connection.finish(while_waiting=beat, reply_seconds=reply_seconds)


def test_a_reader_with_a_short_timeout_gives_up_before_the_deadline(peer: Peer) -> None:
    with pytest.raises(Silent, match="longer than its answers take"):
        brief_exchange(peer.connection, 0.02, lambda: None, lambda: None)
    assert not peer.connection.is_alive()


def test_a_process_that_was_stopped_listens_before_it_gives_up(peer: Peer) -> None:
    now = [0.0]
    connection = connected(peer, lambda: now[0])
    accepted, _ = peer.listener.accept()

    def stop() -> None:
        now[0] += 50.0

    response = brief_exchange(connection, 0.02, stop, lambda: accepted.sendall(GOOD))
    assert response.event == ANSWER
    connection.close()
    accepted.close()


def test_an_answer_that_came_while_the_process_was_stopped_is_read(peer: Peer) -> None:
    now = [0.0]
    connection = connected(peer, lambda: now[0])
    accepted, _ = peer.listener.accept()

    def stop() -> None:
        accepted.sendall(GOOD)
        now[0] += 500.0

    assert brief_exchange(connection, 0.02, stop, lambda: None).event == ANSWER
    connection.close()
    accepted.close()


def test_an_answer_that_has_begun_has_its_whole_time(peer: Peer) -> None:
    now, rest = [0.0], [GOOD[20:]]
    connection = connected(peer, lambda: now[0])
    accepted, _ = peer.listener.accept()

    def come_slowly() -> None:
        now[0] += 20.0
        accepted.sendall(rest.pop())

    response = brief_exchange(connection, 0.02, lambda: accepted.sendall(GOOD[:20]), come_slowly)
    assert response.event == ANSWER
    connection.close()
    accepted.close()


def test_a_look_that_took_a_minute_counts_as_a_slice_of_silence() -> None:
    wait = _Wait(lambda: 60.0, until=100.0, timeout_seconds=100.0, quiet_until=2.0)
    wait.looked(60.0)
    assert wait.left == 2.0 - SLICE_SECONDS


def test_an_idle_close_is_noticed_before_anything_is_sent(peer: Peer) -> None:
    peer.accepted.close()
    wait_until_dead(peer.connection)
    with pytest.raises(ConnectionClosed):
        peer.exchange()


def test_a_stray_byte_ends_the_connection(peer: Peer) -> None:
    peer.accepted.sendall(b"x")
    wait_until_dead(peer.connection)
    assert peer.connection.ending is ConnectionEnd.STRAY


def test_stray_bytes_behind_an_answer_end_the_connection_after_it(peer: Peer) -> None:
    thread = peer.answer(GOOD + b"HTTP/1.1 200")
    assert not peer.exchange().reusable
    thread.join()
    assert not peer.connection.is_alive()
    assert peer.connection.ending is ConnectionEnd.STRAY


def test_a_close_that_nothing_announced_is_told_as_one(peer: Peer) -> None:
    peer.accepted.close()
    wait_until_dead(peer.connection)
    assert peer.connection.ending is ConnectionEnd.QUIET


def test_a_reset_before_the_first_byte_is_told_from_an_ambiguous_end(peer: Peer) -> None:
    peer.accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.accepted.close()
    with contextlib.suppress(AssertionError):
        wait_until_reset(peer)
    with pytest.raises((NothingWritten, ExchangeCut)) as error:
        peer.exchange()
    assert error.type is NothingWritten


def wait_until_reset(peer: Peer) -> None:
    sock = peer.connection._socket
    assert sock is not None
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        except OSError:
            return


def test_garbage_is_ambiguous_and_closes(peer: Peer) -> None:
    thread = peer.answer(b"\x00\x01\x02 not http\r\n\r\n")
    with pytest.raises(ExchangeCut):
        peer.exchange()
    thread.join()
    assert not peer.connection.is_alive()


def test_nobody_listening_is_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(NoConnection):
        Connector(Address(*address), HTTP, time.monotonic).connect(lambda: None)


def test_a_large_request_is_written_whole(peer: Peer) -> None:
    body = b"x" * 3_000_000
    received = bytearray()

    def run() -> None:
        while len(received) < len(body):
            received.extend(peer.accepted.recv(1 << 16))
        peer.accepted.sendall(GOOD)

    thread = threading.Thread(target=run)
    thread.start()
    exchange(peer.connection, body, 5, lambda: None)
    thread.join()
    assert bytes(received) == body


def test_an_answer_that_came_in_time_is_read_however_late_we_are(peer: Peer) -> None:
    now = [0.0]
    connection = connected(peer, lambda: now[0])
    accepted, _ = peer.listener.accept()
    connection.begin(REQUEST, timeout_seconds=5, while_waiting=lambda: None)
    accepted.recv(4096)
    accepted.sendall(GOOD)
    now[0] = 60.0
    assert connection.finish(while_waiting=lambda: None).event == ANSWER
    accepted.close()
    connection.close()


def test_before_a_mark_it_waits_for_an_answer_so_long_and_heartbeats(peer: Peer) -> None:
    beats: list[bool] = []
    peer.connection.begin(REQUEST, timeout_seconds=5, while_waiting=lambda: None)
    assert not peer.connection.await_answer(2.1 * SLICE_SECONDS, lambda: beats.append(True))
    assert len(beats) >= 2
    thread = peer.answer(GOOD)
    assert peer.connection.await_answer(5, lambda: None)
    assert peer.connection.finish(while_waiting=lambda: None).event == ANSWER
    thread.join()


def test_an_end_instead_of_an_answer_is_not_waited_for(peer: Peer) -> None:
    peer.connection.begin(REQUEST, timeout_seconds=5, while_waiting=lambda: None)
    peer.answer(close=True).join()
    assert peer.connection.await_answer(60, lambda: None)
    with pytest.raises(ExchangeCut):
        peer.connection.finish(while_waiting=lambda: None)
    assert peer.connection.await_answer(60, lambda: None), "nothing more can come"


def test_what_was_listened_before_a_mark_counts_for_the_reply_timeout(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def silent(_sock: socket.socket, seconds: float, **_: bool) -> bool:
        now[0] += seconds
        return False

    monkeypatch.setattr("oldhost_sync.oldhost.connection.ready", silent)
    connection = connected(peer, lambda: now[0])
    connection.begin(REQUEST, timeout_seconds=60, while_waiting=lambda: None)
    assert not connection.await_answer(0.25, lambda: None)
    with pytest.raises(Silent):
        connection.finish(while_waiting=lambda: None, reply_seconds=0.3)
    assert now[0] == pytest.approx(0.3)


def test_a_second_request_before_the_answer_is_a_violation(peer: Peer) -> None:
    peer.connection.begin(REQUEST, timeout_seconds=5, while_waiting=lambda: None)
    with pytest.raises(InvariantViolated):
        peer.connection.begin(REQUEST, timeout_seconds=5, while_waiting=lambda: None)
