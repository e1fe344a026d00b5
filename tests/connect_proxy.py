"""A CONNECT proxy for tests: a TCP server in threads of the test's process, on a free port of the loopback.

It connects its clients to where they ask, or to `leads_to`. What it answers can be told instead.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from oldhost_sync.oldhost.address import Address

YES = b"HTTP/1.1 200 Connection established\r\n\r\n"
Script = Callable[[socket.socket], bool]


def says(*pieces: bytes, pause: float = 0.0, goes_on: bool = False) -> Script:
    """Answers with these bytes, a pause before each, and closes; or goes on as a tunnel."""

    def answer(sock: socket.socket) -> bool:
        for piece in pieces:
            threading.Event().wait(pause)
            sock.sendall(piece)
        return goes_on

    return answer


@dataclass
class ConnectProxy:
    """`authorization`: what each client must show. `script`: answers in its place; True: then it is a tunnel.
    `heads`: what clients asked.
    """

    authorization: str = ""
    leads_to: tuple[str, int] | None = None
    script: Script | None = None
    heads: list[str] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _sockets: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1], f"127.0.0.1:{self.port}")
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def stop(self) -> None:
        for sock in (self._listener, *self._sockets):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _start(self, act: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                more = client.recv(65536)
                if not more:
                    return
                head += more
            self.heads.append(head.decode())
            if self._answer(client, self.heads[-1]):
                self._connect(client, self.heads[-1])

    def _answer(self, client: socket.socket, head: str) -> bool:
        if self.script is not None:
            return self.script(client)
        if self.authorization and f"\r\nProxy-Authorization: {self.authorization}\r\n" not in head:
            client.sendall(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nno")
            client.recv(65536)  # it keeps the connection open, for other credentials
            return False
        client.sendall(YES)
        return True

    def _connect(self, client: socket.socket, head: str) -> None:
        name, _, port = head.split(" ")[1].rpartition(":")
        with socket.create_connection(self.leads_to or (name.strip("[]"), int(port))) as host:
            self._sockets.append(host)
            back = threading.Thread(target=_pour, args=(host, client), daemon=True)
            back.start()
            _pour(client, host)
            back.join(10)


def _pour(source: socket.socket, sink: socket.socket) -> None:
    """Bytes one way, until the end."""
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
