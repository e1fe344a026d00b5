"""A host that closes each connection after so many answers: after the first time the next request
is not written too early."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from oldhost_sync.drivers.http.driver import HTTP
from oldhost_sync.oldhost import connection as connection_module
from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.connection import CLOSE_SECONDS, OldHostConnection, ready
from oldhost_sync.oldhost.connector import Connector

REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Host:
    """Gives answers on one connection after the other, and closes each when it is told to."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(5)
        self.connector = Connector(Address(*self.listener.getsockname()), HTTP, time.monotonic)
        self._open: list[socket.socket | OldHostConnection] = [self.listener]

    def connection(self) -> OldHostConnection:
        connection = self.connector.connect(lambda: None)
        self.accepted, _ = self.listener.accept()
        self.accepted.settimeout(5)
        self._open += [connection, self.accepted]
        return connection

    def close(self) -> None:
        for each in self._open:
            each.close()

    def exchange(self, connection: OldHostConnection) -> None:
        connection.begin(REQUEST, timeout_seconds=5, while_waiting=lambda: None)
        self.accepted.recv(4096)
        self.accepted.sendall(GOOD)
        connection.finish(while_waiting=lambda: None)

    def closed_after(self, answers: int) -> None:
        connection = self.connection()
        for _ in range(answers):
            self.exchange(connection)
        self.accepted.close()
        while connection.is_alive():
            pass


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long connections were ready to wait for the host's close, each time."""
    asked: list[float] = []

    def noted(sock: socket.socket, seconds: float, *, writing: bool) -> bool:
        asked.append(seconds)
        return ready(sock, seconds, writing=writing)

    monkeypatch.setattr(connection_module, "ready", noted)
    return asked


def test_close_that_is_expected_is_waited_for_before_the_next_request(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "CLOSE_SECONDS", 30.0)
    host.closed_after(2)
    connection = host.connection()
    host.exchange(connection)
    host.exchange(connection)
    threading.Timer(0.05, host.accepted.close).start()
    assert not connection.is_alive()


def test_connection_is_alive_at_once_before_its_last_answer(host: Host, waits: list[float]) -> None:
    host.closed_after(2)
    connection = host.connection()
    host.exchange(connection)
    waits.clear()
    assert connection.is_alive()
    assert waits == []


def test_connection_that_outlives_the_limit_is_never_waited_for_again(host: Host, waits: list[float]) -> None:
    host.closed_after(1)
    connection = host.connection()
    host.exchange(connection)
    waits.clear()
    assert connection.is_alive()
    assert waits == [CLOSE_SECONDS]
    assert connection.is_alive()
    assert waits == [CLOSE_SECONDS]
