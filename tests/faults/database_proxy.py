"""A small TCP proxy before MariaDB that can stop or cut a connection at an exact statement.

It reads the statements that a client sends (they are plain text in MariaDB's protocol) and acts when one fits: hold it
back, hold its answer back, or cut the connection before or after the server got it. So a process can be killed between
two steps, and a COMMIT's answer can be lost, without any switch in the product.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

COM_QUERY = 0x03
WAIT_SECONDS_MAX = 60.0
LOOK_AGAIN_SECONDS = 0.02


class Action(Enum):
    """What happens at a statement that fits."""

    HOLD_STATEMENT = "the server never gets it, until released"
    HOLD_ANSWER = "the server carries it out, the client waits"
    CUT_BEFORE = "the server never gets it, the connection is gone"
    CUT_AFTER = "the server carries it out, the connection is gone before the answer"


@dataclass
class Trap:
    """Springs once. `pattern`: of the statement; `within`: of an earlier statement in the same transaction."""

    action: Action
    pattern: re.Pattern[str]
    within: re.Pattern[str] | None = None
    sprung: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    carried_out: threading.Event = field(default_factory=threading.Event)

    def fits(self, statement: str, transaction: list[str]) -> bool:
        if self.sprung.is_set() or not self.pattern.search(statement):
            return False
        return self.within is None or any(self.within.search(earlier) for earlier in transaction)

    def wait(self, seconds: float = WAIT_SECONDS_MAX) -> None:
        """Until it has sprung (and the server has carried the statement out, where it is let through)."""
        event = self.carried_out if self.action in {Action.HOLD_ANSWER, Action.CUT_AFTER} else self.sprung
        assert event.wait(seconds), f"no statement fitted {self.pattern.pattern}"


class DatabaseProxy:
    """`with DatabaseProxy(server_port) as proxy: trap = proxy.set_trap(Action.CUT_AFTER, "^COMMIT")`."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._traps: list[Trap] = []
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        # What the clients have asked the server for: each entry is a round trip.
        self.asked: list[str] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for trap in self._traps:
            trap.released.set()
        self._listener.close()
        self.cut_all()

    def url(self, database_url: str) -> str:
        """`database_url`, through this proxy."""
        return re.sub(r"@127\.0\.0\.1:\d+/", f"@127.0.0.1:{self.port}/", database_url)

    def set_trap(self, action: Action, pattern: str, within: str | None = None) -> Trap:
        trap = Trap(action, re.compile(pattern), re.compile(within) if within else None)
        with self._lock:
            self._traps.append(trap)
        return trap

    def lead_to(self, server_port: int) -> None:
        """To another server from now on; the connections there are now stay."""
        self._server_port = server_port

    def cut_all(self) -> None:
        """Cut every connection that there is now."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            _close(each)

    # ---------------------------------------------------------------------------------------------------- carrying

    def _accept(self) -> None:
        for client, server in accepted(self._listener, lambda: self._server_port):
            with self._lock:
                self._sockets += [client, server]
            _Carrier(client, server, self._trap_for, self.asked).start()

    def _trap_for(self, statement: str, transaction: list[str]) -> Trap | None:
        with self._lock:
            for trap in self._traps:
                if trap.fits(statement, transaction):
                    trap.sprung.set()
                    return trap
        return None


def accepted(listener: socket.socket, server_port: Callable[[], int]) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Each client until the listener is closed, with a connection to the server for it."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        try:
            server = socket.create_connection(("127.0.0.1", server_port()))
        except OSError:  # the server is away, and so the client is told
            client.close()
            continue
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield client, server


class _Carrier:
    """One connection: two threads that carry bytes, the client's packet by packet."""

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        trap_for: Callable[[str, list[str]], Trap | None],
        asked: list[str],
    ) -> None:
        self._client = client
        self._server = server
        self._trap_for = trap_for
        self._asked = asked
        self._transaction: list[str] = []
        self._answer_to: Trap | None = None

    def start(self) -> None:
        for carry in (self._to_server, self._to_client):
            threading.Thread(target=self._until_closed, args=(carry,), daemon=True).start()

    def _until_closed(self, carry: Callable[[], None]) -> None:
        with contextlib.suppress(OSError, EOFError):
            carry()
        for each in (self._client, self._server):
            _close(each)

    def _to_server(self) -> None:
        while True:
            packet = self._read_packet()
            trap = self._spring(packet)
            if trap is not None:
                if trap.action is Action.CUT_BEFORE:
                    return
                if trap.action is Action.HOLD_STATEMENT:
                    self._hold(trap)
                else:
                    self._answer_to = trap
            self._server.sendall(packet)

    def _to_client(self) -> None:
        while received := self._server.recv(65536):
            trap, self._answer_to = self._answer_to, None
            if trap is not None:
                trap.carried_out.set()
                if trap.action is Action.CUT_AFTER:
                    return
                self._hold(trap)
            self._client.sendall(received)

    def _hold(self, trap: Trap) -> None:
        """Until released. A client that dies meanwhile is gone for the server too, as without a proxy."""
        while not trap.released.wait(LOOK_AGAIN_SECONDS):
            with contextlib.suppress(BlockingIOError):
                if not self._client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    raise EOFError

    def _spring(self, packet: bytes) -> Trap | None:
        if len(packet) < 5 or packet[3] != 0:
            return None
        statement = packet[5:].decode("utf-8", errors="replace")
        self._asked.append(statement)
        if packet[4] != COM_QUERY:
            return None
        trap = self._trap_for(statement, self._transaction)
        if statement.startswith(("COMMIT", "ROLLBACK")):
            self._transaction = []
        else:
            self._transaction.append(statement[:200])
        return trap

    def _read_packet(self) -> bytes:
        head = self._read(4)
        return head + self._read(int.from_bytes(head[:3], "little"))

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._client.recv(count - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)


def _close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
