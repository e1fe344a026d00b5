"""A way to MariaDB on which its clock can be set: each statement runs as if it were so much earlier or later.

A server's clock can't be set for one test, and its process' can't without a library in between. But a session's can:
the server takes `SET timestamp` for all of UTC_TIMESTAMP, NOW and the columns' defaults. So this proxy says it before
each statement, with the time as it is plus `offset_s`, and keeps the server's word that it has done so to itself.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from typing import Self

from tests.faults.database_proxy import accepted

COM_QUERY = 0x03
WAIT_SECONDS_MAX = 30.0


class DatabaseClock:
    """`with DatabaseClock(server_port) as clock: clock.url(database_url); clock.offset_s -= 7200`."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.offset_s = 0.0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def url(self, database_url: str) -> str:
        """`database_url`, by this clock."""
        return re.sub(r"@127\.0\.0\.1:\d+/", f"@127.0.0.1:{self.port}/", database_url)

    def setting(self) -> bytes:
        """The packet that sets a session's clock; nothing while it is right."""
        if not self.offset_s:
            return _query("SET timestamp = DEFAULT")
        return _query(f"SET timestamp = {time.time() + self.offset_s:.6f}")

    def _accept(self) -> None:
        for client, server in accepted(self._listener, lambda: self._server_port):
            _Carrier(client, server, self).start()


class _Carrier:
    """One connection: a client speaks, then waits for the answer; so the server's next word after ours is to us."""

    def __init__(self, client: socket.socket, server: socket.socket, clock: DatabaseClock) -> None:
        self._client = client
        self._server = server
        self._clock = clock
        self._to_us = threading.Event()
        self._heard = threading.Event()

    def start(self) -> None:
        for carry in (self._carry_statements, self._carry_answers):
            threading.Thread(target=self._until_closed, args=(carry,), daemon=True).start()

    def _until_closed(self, carry: object) -> None:
        with contextlib.suppress(OSError, EOFError):
            carry()  # type: ignore[operator]
        for each in (self._client, self._server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _carry_statements(self) -> None:
        while True:
            packet = _packet(self._client)
            if len(packet) > 5 and packet[3] == 0 and packet[4] == COM_QUERY:
                self._heard.clear()
                self._to_us.set()
                self._server.sendall(self._clock.setting())
                if not self._heard.wait(WAIT_SECONDS_MAX):
                    return
            self._server.sendall(packet)

    def _carry_answers(self) -> None:
        while received := self._server.recv(65536):
            if self._to_us.is_set():
                self._to_us.clear()
                self._heard.set()
            else:
                self._client.sendall(received)


def _query(statement: str) -> bytes:
    body = bytes([COM_QUERY]) + statement.encode()
    return len(body).to_bytes(3, "little") + b"\0" + body


def _packet(sock: socket.socket) -> bytes:
    head = _exactly(sock, 4)
    return head + _exactly(sock, int.from_bytes(head[:3], "little"))


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
