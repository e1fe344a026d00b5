"""The way to OldHost under a slow, broken or changing name service."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.connector import REACH_SECONDS_MAX, Connector, SockAddress
from oldhost_sync.oldhost.errors import NoConnection

NAME = Address("oldhost.example", 8100, "oldhost.example:8100")


class Names:
    """A name service that answers when it is let; each beat is a second of the clock."""

    def __init__(self, found: list[SockAddress]) -> None:
        self.found = found
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked = 0
        self.seconds = 0.0
        self.beats = 0
        self.answer_after_beats = 0

    def resolve(self, name: str, port: int) -> list[SockAddress]:
        self.asked += 1
        assert self.may_answer.wait(30)
        if not self.found:
            raise OSError("no such name")
        return self.found

    def clock(self) -> float:
        return self.seconds

    def beat(self) -> None:
        self.beats += 1
        self.seconds += 1
        if self.answer_after_beats and self.beats >= self.answer_after_beats:
            self.may_answer.set()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def names(listener: socket.socket) -> Names:
    return Names([(socket.AF_INET, listener.getsockname())])


@pytest.mark.slow
def test_a_name_service_that_takes_eight_seconds_is_waited_for_with_heartbeats(names: Names) -> None:
    names.may_answer.clear()
    names.answer_after_beats = 8
    connection = Connector(NAME, names.clock, names.resolve).connect(names.beat)
    assert connection.is_alive()
    assert connection.authority == "oldhost.example:8100"
    connection.close()


@pytest.mark.slow
def test_a_look_up_that_outlasts_the_deadline_serves_the_next_try(names: Names) -> None:
    names.may_answer.clear()
    connector = Connector(NAME, names.clock, names.resolve)
    with pytest.raises(NoConnection, match="gave no address"):
        connector.connect(names.beat)
    assert names.beats >= REACH_SECONDS_MAX - 1
    names.may_answer.set()
    connector.connect(names.beat).close()
    assert names.asked == 1


def test_the_last_address_that_worked_serves_while_the_name_service_is_away(names: Names) -> None:
    connector = Connector(NAME, names.clock, names.resolve)
    connector.connect(names.beat).close()
    names.may_answer.clear()
    connector.connect(names.beat).close()
    assert names.beats <= 2
    names.may_answer.set()


def test_an_address_that_moved_is_found_though_the_old_one_worked(names: Names, listener: socket.socket) -> None:
    connector = Connector(NAME, names.clock, names.resolve)
    connector.connect(names.beat).close()
    listener.close()
    with socket.create_server(("127.0.0.1", 0)) as moved:
        names.found = [(socket.AF_INET, moved.getsockname())]
        connector.connect(names.beat).close()


def test_of_several_addresses_the_first_that_answers_is_taken(names: Names) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()
    names.found.insert(0, (socket.AF_INET, nobody))
    Connector(NAME, names.clock, names.resolve).connect(names.beat).close()


def test_a_name_that_is_unknown_is_no_connection(names: Names) -> None:
    names.found = []
    with pytest.raises(NoConnection, match="no such name"):
        Connector(NAME, names.clock, names.resolve).connect(names.beat)


def test_a_connection_keeps_itself_alive(names: Names) -> None:
    with Connector(NAME, names.clock, names.resolve).connect(names.beat)._socket as sock:  # type: ignore[union-attr]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 240
