"""The one socket to OldHost. It does one exchange at a time and hides nothing: no retry, no reconnect (trap 14).

After any error, any stray byte or a "Connection: close" it is closed for good; only a new session opens another.
`is_alive` is called *before* a row is marked SENT, so that a connection closed by the host while idle leaves nothing in
doubt. One deadline covers writing and reading together, on a monotonic clock. Between the two, while OldHost works, the
session does its own work; an answer that has already arrived is read even after the deadline. A reader may give up
earlier, but only after it has really listened: a process that was suspended looks again first.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from oldhost_sync.drivers.claims import undeclared
from oldhost_sync.drivers.contract import LOCAL, NOT_SHOWN, Driver, Garbled, Peer, Wire
from oldhost_sync.drivers.events import (
    Closing,
    ConnectionEnd,
    End,
    Event,
    Malformed,
    NoService,
    OutcomeTold,
    Ready,
    Rejected,
    Reply,
    Unlisted,
    Working,
    Write,
)
from oldhost_sync.oldhost.access import REFUSED_OURS, refuses_ours
from oldhost_sync.oldhost.errors import (
    CertificateRefused,
    ConnectionClosed,
    ExchangeCut,
    InvariantViolated,
    NothingWritten,
    Silent,
    Unreadable,
)

# A wait on the socket calls `while_waiting` after this time, which is well below any heartbeat timeout.
SLICE_SECONDS = 0.5
READ_BYTES = 16 * 1024
# How long a connection is idle before its driver's own sign of life is written.
IDLE_SECONDS = 20.0
# TCP keep-alive detects a connection that vanished silently (a firewall dropped its state, a machine lost power) within
# a minute, and keeps an idle one in the connection tables of firewalls, which expire after some 240 s.
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}

# How long a likely close is waited for: far longer than it takes to follow its answer, and only once in N answers.
CLOSE_SECONDS = 0.25

# What a socket raises that has nothing to read, or no room to write.
NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Clock = Callable[[], float]
Heartbeat = Callable[[], None]


class HostConnection(Protocol):
    """What a session needs of its connection; the simulation has its own.

    `wire`: makes the requests. `at_ms`: the wall clock's time, for those that are dated. `ending`: why it carries
    nothing more, as far as OldHost ended it. `ready`: what the greeting was answered with.
    """

    @property
    def wire(self) -> Wire: ...

    @property
    def ready(self) -> Ready: ...

    def at_ms(self) -> int: ...

    @property
    def ending(self) -> ConnectionEnd: ...

    def greet(self, *, timeout_seconds: float, while_waiting: Heartbeat) -> End: ...

    def is_alive(self) -> bool: ...

    def keep_alive(self) -> None: ...

    def begin(self, request: bytes, *, timeout_seconds: float, while_waiting: Heartbeat) -> None: ...

    def await_answer(self, seconds: float, while_waiting: Heartbeat) -> bool: ...

    def finish(self, *, while_waiting: Heartbeat, reply_seconds: float = math.inf) -> Reply: ...

    def close(self) -> None: ...


class AnswerLimit:
    """After how many answers OldHost closes a connection, learnt from the last one that it closed; one for each host.

    Some hosts and proxies close each connection after a fixed number of requests. If a request is written while the
    close is still arriving, we can't tell whether it was read, so it is in doubt for the whole settle time. So if the
    last connection ended after N answers, we wait a moment after the N-th on the next one, to see the close before we
    write again.
    """

    def __init__(self) -> None:
        self._answers = 0  # 0: no limit known

    def closed_after(self, answers: int) -> None:
        """OldHost closed a connection after this many complete answers."""
        self._answers = answers

    def outlived(self) -> None:
        """A connection was not closed when expected, so no limit is known any more."""
        self._answers = 0

    def is_reached(self, answers: int) -> bool:
        """Whether the connection is likely to be closed now."""
        return 0 < self._answers == answers


@dataclass(slots=True)
class _Wait:
    """Wait until `until`, or until `quiet_until` if no byte has arrived by then."""

    clock: Clock
    until: float
    timeout_seconds: float
    quiet_until: float = math.inf

    @property
    def left(self) -> float:
        return min(self.until, self.quiet_until) - self.clock()

    def looked(self, seconds: float) -> None:
        """A look counts as one slice at most, however long it took: the process may have been suspended."""
        self.quiet_until += max(0.0, seconds - SLICE_SECONDS)

    def given_up(self) -> str:
        if self.clock() < self.until:
            return "silent for longer than its answers take"
        return f"no whole answer within {self.timeout_seconds:g} s, its request timeout"


class OldHostConnection:
    """A blocking connection over a socket, plain or TLS. `limit`: after how many answers OldHost closes, if known."""

    def __init__(
        self, sock: socket.socket, clock: Clock, driver: Driver, peer: Peer = LOCAL, limit: AnswerLimit | None = None
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEP_ALIVE.items():
            if hasattr(socket, option):  # not every system has all three
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._socket: socket.socket | None = sock
        self._clock = clock
        self.wire = driver.wire(peer)
        self._peer = peer
        self.ready = Ready()
        self._capabilities = driver.capabilities
        self._speaks_unasked = driver.capabilities.speaks_unasked
        self._answer_bytes_max = driver.answer_bytes_max
        self._written_at = clock()
        self._until: float | None = None  # the deadline of the exchange on the wire
        self._timeout_seconds = 0.0
        self._began = 0.0
        self._listened = 0.0  # of this exchange, before `finish`
        self._limit = limit or AnswerLimit()
        self._answers = 0
        self.ending = ConnectionEnd.NONE
        self.has_served = False  # it gave an answer of OldHost's kind, not a proxy's page

    def at_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def is_alive(self) -> bool:
        """False, and closed for good, when the host has closed it or sent an unexpected byte."""
        if self._socket is None:
            return False
        if self._limit.is_reached(self._answers) and not ready(self._socket, CLOSE_SECONDS, writing=False):
            self._limit.outlived()
        self.ending = ConnectionEnd.QUIET
        try:
            while data := self._socket.recv(READ_BYTES if self._speaks_unasked else 1):
                if not (self._speaks_unasked and self._take_unasked(self._socket, data)):
                    self.ending = ConnectionEnd.STRAY
                    break
        except NOT_YET:
            self.ending = ConnectionEnd.NONE
            return True
        except OSError:
            pass
        self._limit.closed_after(self._answers)
        self.close()
        return False

    def greet(self, *, timeout_seconds: float, while_waiting: Heartbeat) -> End:
        """Say what the driver says first, and read the answer; raises as `begin` and `finish` do."""
        greeting = self.wire.greet(self.at_ms())
        if not greeting:
            return self.ready
        self.begin(greeting, timeout_seconds=timeout_seconds, while_waiting=while_waiting)
        event = self.finish(while_waiting=while_waiting).event
        if isinstance(event, Ready):
            self.ready = event
        return event

    def keep_alive(self) -> None:
        """Write the driver's sign of life, if it has one and nothing was written for a while."""
        sign = self.wire.idle(self.at_ms())
        if sign and self._socket is not None and self._clock() - self._written_at >= IDLE_SECONDS:
            self._send_aside(self._socket, sign)

    def begin(self, request: bytes, *, timeout_seconds: float, while_waiting: Heartbeat) -> None:
        """Write `request`; its answer must be read by `finish`, `timeout_seconds` from now.

        Raises NothingWritten, ExchangeCut or ConnectionClosed; each closes it for good.
        """
        if self._socket is None:
            raise ConnectionClosed("this connection was closed before")
        if self._until is not None:
            raise InvariantViolated("an operation is on the wire already")
        self._began, self._listened = self._clock(), 0.0
        self._written_at = self._began
        self._until, self._timeout_seconds = self._began + timeout_seconds, timeout_seconds
        written = False
        try:
            self._write(self._socket, request, _Wait(self._clock, self._until, timeout_seconds), while_waiting)
            written = True
        finally:
            if not written:
                self.close()

    def await_answer(self, seconds: float, while_waiting: Heartbeat) -> bool:
        """Wait at most so long, for `finish` to have something to read (an answer's first byte, or the end); False if
        it has not.
        """
        until = self._clock() + seconds
        while self._socket is not None:
            looked_at = self._clock()
            if ready(self._socket, min(SLICE_SECONDS, max(0.0, until - looked_at)), writing=False):
                return True
            self._listened += min(SLICE_SECONDS, self._clock() - looked_at)
            if looked_at >= until:
                return False
            while_waiting()
        return True

    def finish(self, *, while_waiting: Heartbeat, reply_seconds: float = math.inf) -> Reply:
        """Read the answer. Raises ExchangeCut or ConnectionClosed; after both it is closed for good.

        Gives up if no byte has arrived `reply_seconds` after the writing began, but not before it has listened for a
        slice of that; once a byte has arrived, the whole request timeout applies.
        """
        if self._socket is None or self._until is None:
            raise ConnectionClosed("nothing is on the wire")
        until, self._until = self._until, None
        whole = False
        try:
            to_listen = max(0.0, min(reply_seconds, SLICE_SECONDS) - self._listened)
            quiet_until = max(self._began + reply_seconds, self._clock() + to_listen)
            wait = _Wait(self._clock, until, self._timeout_seconds, quiet_until)
            reply = self._read(self._socket, wait, while_waiting)
            self._answers += 1
            self.has_served = self.has_served or not isinstance(reply.event, NoService | Unlisted)
            whole, self.ending = reply.reusable, reply.ending
            return reply
        finally:
            if not whole:
                self.close()

    def close(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            if self._until is None and (bye := self.wire.bye(self.at_ms())):
                self._send_aside(sock, bye)
            with contextlib.suppress(OSError):
                sock.close()

    def _take_unasked(self, sock: socket.socket, data: bytes) -> bool:
        """Whether what came while nothing was asked is what a driver may hear then."""
        try:
            events = self._events(data)
        except Unreadable:
            return False
        for event in events:
            if isinstance(event, Write):
                self._send_aside(sock, event.data)
        return all(isinstance(event, Working | Write) for event in events)

    def _send_aside(self, sock: socket.socket, data: bytes) -> None:
        """Some bytes that no answer follows; what does not fit at once ends the connection."""
        self._written_at = self._clock()
        try:
            sent = sock.send(data)
        except OSError:
            sent = 0
        if sent < len(data):
            with contextlib.suppress(OSError):
                sock.close()

    def _write(self, sock: socket.socket, request: bytes, wait: _Wait, while_waiting: Heartbeat) -> None:
        left = memoryview(request)
        while left:
            try:
                left = left[sock.send(left) :]
            except NOT_YET as error:
                self._wait(sock, wait, while_waiting, writing=not isinstance(error, ssl.SSLWantReadError))
            except OSError as error:
                if self._is_certificate_refused(sock):
                    raise CertificateRefused(REFUSED_OURS) from error
                # TLS hands over a part of what it does not report as sent.
                if len(left) == len(request) and not isinstance(sock, ssl.SSLSocket):
                    raise NothingWritten(f"the connection was lost before writing: {error}") from error
                raise ExchangeCut(f"the connection was lost while writing: {error}") from error

    @staticmethod
    def _is_certificate_refused(sock: socket.socket) -> bool:
        """After a failed write: whether the other side's last word is about our certificate. TLS 1.3 says it late."""
        if isinstance(sock, ssl.SSLSocket):
            try:
                sock.recv(1)
            except ssl.SSLError as error:
                return refuses_ours(error)
            except OSError:
                pass
        return False

    def _read(self, sock: socket.socket, wait: _Wait, while_waiting: Heartbeat) -> Reply:
        heard = b""
        while True:
            self._wait(sock, wait, while_waiting, writing=False)
            data = self._received(sock, begun=bool(heard))
            if data is None:
                continue
            heard += data
            if len(heard) > self._answer_bytes_max:
                raise Unreadable(f"the answer can't be read: it is longer than {self._answer_bytes_max} bytes")
            wait.quiet_until = math.inf
            events = self._events(data)
            for event in events:
                if isinstance(event, Write):
                    self._write(sock, event.data, wait, while_waiting)
            if (reply := _reply(events, self.wire)) is not None:
                return self._without_secrets(reply, heard)
            if not data:
                raise Unreadable("the answer can't be read: closed before it was complete")

    def _without_secrets(self, reply: Reply, heard: bytes) -> Reply:
        """Some hosts repeat a request in their answer; what they said is recorded and shown, but not with our secrets.
        What is shown of it may have only a part of one, or spell it in another way, so both are looked at.
        """
        event, said = reply.event, reply.said
        reason = event.reason if isinstance(event, Rejected | Malformed | OutcomeTold) else ""
        if not (reason or said) or not any(map(self._peer.echoes_secret, (heard, reason.encode()))):
            return reply
        if isinstance(event, Rejected | Malformed | OutcomeTold):
            event = replace(event, reason=NOT_SHOWN)
        return Reply(event, reply.ending, said and replace(said, words=NOT_SHOWN))

    def _received(self, sock: socket.socket, *, begun: bool) -> bytes | None:
        """The next bytes; empty: the end; None: there are none yet. `begun`: some of the answer were here before."""
        try:
            data = sock.recv(READ_BYTES)
        except NOT_YET:
            return None
        except OSError as error:
            if isinstance(error, ssl.SSLError) and refuses_ours(error):
                raise CertificateRefused(REFUSED_OURS) from error
            if not begun:
                self._limit.closed_after(self._answers)
            raise ExchangeCut(f"the connection was lost while reading: {error}") from error
        if not data and not begun:
            self._limit.closed_after(self._answers)
            raise ExchangeCut("OldHost closed the connection instead of answering")
        return data

    def _events(self, data: bytes) -> list[Event]:
        """What the wire makes of the next bytes, or of the end. Whatever goes wrong there proves nothing."""
        try:
            events = self.wire.feed(data) if data else self.wire.end()
        except Garbled as error:
            raise Unreadable(f"the answer can't be read: {error}") from error
        except Exception as error:
            raise Unreadable(f"the answer can't be read: its driver fails with {type(error).__name__}") from error
        for event in events:
            if why := undeclared(event, self._capabilities):
                raise Unreadable(f"the answer can't be read: {why}")
        return events

    def _wait(self, sock: socket.socket, wait: _Wait, while_waiting: Heartbeat, *, writing: bool) -> None:
        while True:
            left, began = wait.left, self._clock()
            if ready(sock, min(SLICE_SECONDS, max(0.0, left)), writing=writing):
                return
            if left <= 0:
                raise Silent(wait.given_up())
            wait.looked(self._clock() - began)
            while_waiting()


def ready(sock: socket.socket, seconds: float, *, writing: bool) -> bool:
    """Uses poll, not select: a process with many hosts has file descriptors beyond 1024."""
    if not writing and isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True  # decrypted already: the system has nothing more
    poll = select.poll()
    poll.register(sock, select.POLLOUT if writing else select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _reply(events: list[Event], wire: Wire) -> Reply | None:
    """The first answer ends the exchange; what comes behind it belongs to no request."""
    reply: Reply | None = None
    for event in events:
        if reply is not None:
            ending = event.ending if isinstance(event, Closing) else ConnectionEnd.STRAY
            return Reply(reply.event, ending, reply.said)
        if isinstance(event, End):
            reply = Reply(event, said=wire.said)
    return reply
