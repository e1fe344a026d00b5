"""A client of frames that hides nothing: one socket, frames out, frames in."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from tests.simulator.client import DEADLINE_SECONDS, operation

LOGON = {"type": "logon", "version": 1}


def frame(head: Mapping[str, Any] | bytes, body: bytes = b"") -> bytes:
    line = head if isinstance(head, bytes) else json.dumps(head).encode()
    content = line + b"\n" + body if body else line
    return len(content).to_bytes(4, "big") + content


def sync_frame(number: object, body: Mapping[str, Any] | bytes | None = None) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(operation() if body is None else body).encode()
    return frame({"type": "operation", "number": number}, data)


class FrameLine:
    """One connection. `logon`: it begins with one, whose answer is `ready`."""

    def __init__(self, url: str, *, logon: bool = True) -> None:
        address = urlsplit(url)
        self.sock = socket.create_connection((address.hostname, address.port), timeout=DEADLINE_SECONDS)
        self._file = self.sock.makefile("rb")
        self.ready = self.ask(LOGON) if logon else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def receive_bytes(self) -> bytes:
        """The next frame without its length; empty: the connection has ended."""
        return self._file.read(int.from_bytes(self._file.read(4), "big"))

    def receive(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.receive_bytes())
        return said

    def ask(self, head: Mapping[str, Any]) -> dict[str, Any]:
        self.send(frame(head))
        return self.receive()

    def sync(self, number: object, body: Mapping[str, Any] | bytes | None = None) -> dict[str, Any]:
        self.send(sync_frame(number, body))
        return self.receive()

    def expected(self) -> int:
        said: int = self.ask({"type": "expected"})["expected"]
        return said

    def close(self) -> None:
        self._file.close()
        self.sock.close()
