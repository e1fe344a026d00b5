"""A host of another make: a TCP server written from docs/protocol.md alone.

It shares no code with the product or its simulator, so none of their blind spots. What it answers can be told request
by request (`answer.py`); whatever a test leaves open is as the protocol says. It runs in threads of the test's process,
on a free port of the loopback.
"""

from __future__ import annotations

import json
import math
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from tests.foreign_host.answer import (
    Answer,
    Effect,
    applied,
    banned,
    expects,
    gap,
    in_use,
    malformed,
    page,
    replay,
)

BODY_BYTES_MAX = 64 * 1024
HEAD_BYTES_MAX = 16 * 1024
NAMES = ("entity_type", "entity_id", "event_type", "payload", "event_id", "idempotency_key")


@dataclass(frozen=True, slots=True)
class Request:
    """`connection`: the number of its connection; `number`: its own there; both from 1. `expected`: what the host
    wanted next when it came. `at`: seconds of a monotonic clock.
    """

    connection: int
    number: int
    at: float
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    expected: int

    @property
    def is_operation(self) -> bool:
        return self.method != "GET"

    @property
    def nonce(self) -> int | None:
        """In its header, or else the last name of its path."""
        said = self.headers.get("x-nonce", self.target.rpartition("/")[2])
        return int(said) if said.isascii() and said.isdigit() else None


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of an operation."""

    nonce: int | None
    body: bytes
    effect: Effect

    @property
    def change_id(self) -> int:
        operation = json.loads(self.body)
        return int(operation["event_id" if "event_id" in operation else "ref"])


Script = Callable[[Request], Answer | None]
Told = Answer | Script | None


@dataclass
class ForeignHost:
    """`operations`, `asks`: what to answer to the next ones, in order (None: as the protocol says); `always`: asked for
    each request beyond those. `says`: what it claims to expect instead of the truth. `requests`, `ended`,
    `connected_at`: everything that came, what became of each operation, and when each connection was taken. `tls`: it
    speaks TLS; `base`: comes before its paths; `authorization`: what each request must carry.
    """

    expected: int = 501
    ban_seconds: float = 900.0
    tells_ban: bool = True
    always: Script | None = None
    operations: deque[Told] = field(default_factory=deque)
    asks: deque[Told] = field(default_factory=deque)
    says: int | None = None
    requests: list[Request] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    connected_at: list[float] = field(default_factory=list)
    gaps: int = 0
    replays: int = 0
    banned_until: float = 0.0
    address: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    base: str = ""
    authorization: str = ""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _open: socket.socket | None = None
    _free: threading.Event = field(default_factory=threading.Event)
    _listener: socket.socket | None = None
    _threads: list[threading.Thread] = field(default_factory=list)

    # --------------------------------------------------------------------------------------------------- for the test

    @property
    def port(self) -> int:
        assert self._listener is not None
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}:{self.port}{self.base}"

    def applied(self) -> list[int]:
        """The ids of the changes that it applied, in order."""
        return [one.change_id for one in self.ended if one.effect is Effect.APPLIES]

    def refuse_all(self, answer: Answer) -> None:
        """Answer every request with this one from now on."""
        self.always = lambda request: answer

    def every(self, count: int, told: Script) -> None:
        """Say this to every so-manieth operation."""
        seen = 0

        def script(request: Request) -> Answer | None:
            nonlocal seen
            seen += request.is_operation
            return told(request) if request.is_operation and seen % count == 0 else None

        self.always = script

    def ban(self, seconds: float) -> None:
        self.banned_until = time.monotonic() + seconds

    def wait_until_free(self) -> None:
        """Until it has seen the end of its last connection: before, another one would be the second."""
        assert self._free.wait(timeout=10)

    def hang_up(self) -> None:
        """Close the open connection, as a restart does."""
        with self._lock:
            if self._open is not None:
                self._open.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._free.set()
        self._listener = socket.create_server((self.address, 0))
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        assert self._listener is not None
        with self._lock:
            for sock in (self._listener, self._open):
                if sock is not None:
                    _shut(sock)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    # ----------------------------------------------------------------------------------------------------- connections

    def _start(self, act: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        assert self._listener is not None
        while not self._stopped.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connected_at.append(time.monotonic())
                number, is_second = len(self.connected_at), self._open is not None
                if not is_second:
                    self._open = sock
                    self._free.clear()
            if is_second:
                self._turn_away(sock)
            else:
                self._start(self._serve, sock, number)

    def _secured(self, sock: socket.socket) -> socket.socket:
        """Raises OSError when there is no handshake; then the client has been told why."""
        if self.tls is None:
            return sock
        secured = self.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        try:
            secured.do_handshake()
        except OSError:
            with suppress(OSError):
                secured.shutdown(socket.SHUT_WR)
                secured.settimeout(0.2)
            _read_to_the_end(secured)  # an unread rest would turn the alert into a reset
            raise
        return secured

    def _turn_away(self, sock: socket.socket) -> None:
        """A second connection is told so at once, and closed."""
        with suppress(OSError):
            sock = self._secured(sock)
            sock.sendall(in_use().to_bytes())
            sock.shutdown(socket.SHUT_WR)
        self._start(_read_to_the_end, sock)

    def _serve(self, sock: socket.socket, connection: int) -> None:
        data, number = b"", 0
        try:
            sock = self._secured(sock)
            with self._lock:
                self._open = sock
            while not self._stopped.is_set():
                number += 1
                request, data = self._receive(sock, data, connection, number)
                if request is None or not self._answer(sock, request):
                    return
        except OSError:
            pass  # the client has gone
        finally:
            with self._lock:
                self._open = None
                self._free.set()
            sock.close()

    def _receive(self, sock: socket.socket, data: bytes, connection: int, number: int) -> tuple[Request | None, bytes]:
        """The next request, and the bytes behind it; None at the connection's end."""
        while b"\r\n\r\n" not in data and len(data) <= HEAD_BYTES_MAX:
            more = sock.recv(65536)
            if not more:
                return None, b""
            data += more
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        while len(data) < length:
            more = sock.recv(65536)
            if not more:
                return None, b""
            data += more
        with self._lock:
            request = Request(
                connection, number, time.monotonic(), method, target, headers, data[:length], self.expected
            )
            self.requests.append(request)
        return request, data[length:]

    def _answer(self, sock: socket.socket, request: Request) -> bool:
        """Whether the connection goes on. What was read is carried out, even if the client has gone meanwhile."""
        answer = self._decide(request)
        if answer.delay:
            self._stopped.wait(answer.delay)
        self._carry_out(request, answer.effect)
        if answer.pause:
            self._stopped.wait(answer.pause)
        if answer.silent:
            _read_to_the_end(sock)
            return False
        if answer.resets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        sock.sendall(answer.to_bytes())
        return answer.cut is None and answer.raw is None and not answer.ends and answer.version == "1.1"

    # -------------------------------------------------------------------------------------------------- the protocol

    def _decide(self, request: Request) -> Answer:
        with self._lock:
            scripted = self.operations if request.is_operation else self.asks
            told = scripted.popleft() if scripted else self.always
        answer = told(request) if callable(told) else told
        return answer if answer is not None else self.by_the_protocol(request)

    def by_the_protocol(self, request: Request) -> Answer:
        """What a host without a fault answers."""
        with self._lock:
            left = self.banned_until - time.monotonic()
            if left > 0:
                return banned(math.ceil(left) if self.tells_ban else None)
            if self.authorization and request.headers.get("authorization") != self.authorization:
                return page(401)
            expected = self.expected if self.says is None else self.says
            if (request.method, request.target) == ("GET", f"{self.base}/oldhost/expected-nonce"):
                return expects(expected)
            if (request.method, request.target) != ("POST", f"{self.base}/oldhost/sync"):
                return malformed("no such request")
            nonce, wrong = request.nonce, _wrong_with(request)
            if nonce is None or wrong:
                return malformed(wrong or "no nonce")
            if nonce > expected:
                self.gaps += 1
                return gap(expected)
            if nonce < expected:
                self.replays += 1
                self.ban(self.ban_seconds)
                return replay(expected, self.ban_seconds)
            return applied(nonce)

    def _carry_out(self, request: Request, effect: Effect) -> None:
        if not request.is_operation:
            return
        with self._lock:
            self.ended.append(Ended(request.nonce, request.body, effect))
            if effect is not Effect.LEAVES and request.nonce is not None:
                self.expected = request.nonce + 1


def _wrong_with(request: Request) -> str:
    """What the operation lacks; empty if it is as the protocol has it."""
    if len(request.body) > BODY_BYTES_MAX:
        return "over 64 KiB"
    try:
        operation = json.loads(request.body)
    except ValueError:
        return "not JSON"
    if not isinstance(operation, dict) or not isinstance(operation.get("payload"), dict):
        return "no object with a payload"
    missing = [name for name in NAMES if name not in operation]
    if operation.get("entity_type") == "unit" and operation.get("unit_id") != operation.get("entity_id"):
        missing.append("unit_id")
    return f"without {', '.join(missing)}" if missing else ""


def _read_to_the_end(sock: socket.socket) -> None:
    """Wait until the other side closes."""
    with suppress(OSError):
        while sock.recv(65536):
            pass
    sock.close()


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
