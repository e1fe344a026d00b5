"""The way to OldHost under a slow, broken or changing name service."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from oldhost_sync.drivers.http.driver import HTTP
from oldhost_sync.drivers.http.requests import OLDHOST
from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.connector import (
    LOOK_UPS_TO_MOVE,
    NAME_WATCH_SECONDS,
    REACH_SECONDS_MAX,
    Connector,
    NameWatch,
    SockAddress,
)
from oldhost_sync.oldhost.errors import ExchangeCut, NoConnection
from tests.foreign_host.answer import Answer, in_use, page
from tests.foreign_host.host import ForeignHost

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
    connection = Connector(NAME, HTTP, names.clock, names.resolve).connect(names.beat)
    assert connection.is_alive()
    assert b"Host: oldhost.example:8100\r\n" in connection.wire.ask_expected(0)
    connection.close()


@pytest.mark.slow
def test_a_look_up_that_outlasts_the_deadline_serves_the_next_try(names: Names) -> None:
    names.may_answer.clear()
    connector = Connector(NAME, HTTP, names.clock, names.resolve)
    with pytest.raises(NoConnection, match="gave no address"):
        connector.connect(names.beat)
    assert names.beats >= REACH_SECONDS_MAX - 1
    names.may_answer.set()
    connector.connect(names.beat).close()
    assert names.asked == 1


def test_the_last_address_that_worked_serves_while_the_name_service_is_away(names: Names) -> None:
    connector = Connector(NAME, HTTP, names.clock, names.resolve)
    connector.connect(names.beat).close()
    names.may_answer.clear()
    connector.connect(names.beat).close()
    assert names.beats <= 2
    names.may_answer.set()


def test_an_address_that_moved_is_found_though_the_old_one_worked(names: Names, listener: socket.socket) -> None:
    connector = Connector(NAME, HTTP, names.clock, names.resolve)
    connector.connect(names.beat).close()
    listener.close()
    with socket.create_server(("127.0.0.1", 0)) as moved:
        names.found = [(socket.AF_INET, moved.getsockname())]
        connector.connect(names.beat).close()


def test_of_several_addresses_the_first_that_answers_is_taken(names: Names) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()
    names.found.insert(0, (socket.AF_INET, nobody))
    Connector(NAME, HTTP, names.clock, names.resolve).connect(names.beat).close()


def test_a_name_that_is_unknown_is_no_connection(names: Names) -> None:
    names.found = []
    with pytest.raises(NoConnection, match="no such name"):
        Connector(NAME, HTTP, names.clock, names.resolve).connect(names.beat)


def test_a_connection_keeps_itself_alive(names: Names) -> None:
    with Connector(NAME, HTTP, names.clock, names.resolve).connect(names.beat)._socket as sock:  # type: ignore[union-attr]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 240


def asked(connector: Connector, names: Names, timeout_seconds: float = 60) -> None:
    """One ask over a new connection, as an opening does it."""
    connection = connector.connect(names.beat)
    with suppress(ExchangeCut):
        connection.begin(OLDHOST.ask_expected(), timeout_seconds=timeout_seconds, while_waiting=names.beat)
        connection.finish(while_waiting=names.beat)
    connection.close()


@pytest.mark.parametrize("answer", [Answer(ends=True, cut=0), Answer(resets=True), page(502)])
def test_an_address_that_connects_and_gives_no_good_answer_comes_after_the_others(answer: Answer) -> None:
    with ForeignHost() as first, ForeignHost() as second:
        first.refuse_all(answer)
        names = Names([(socket.AF_INET, (host.address, host.port)) for host in (first, second)])
        connector = Connector(NAME, HTTP, names.clock, names.resolve)
        for _ in range(4):
            asked(connector, names)
            for host in (first, second):
                host.wait_until_free()
        assert (len(first.connected_at), len(second.connected_at)) == (1, 3)
        second.refuse_all(answer)
        first.always = None
        for _ in range(3):
            asked(connector, names)
            for host in (first, second):
                host.wait_until_free()
    assert (len(first.connected_at), len(second.connected_at)) == (3, 4)


def test_an_address_whose_host_serves_another_connection_keeps_its_place() -> None:
    with ForeignHost(always=lambda request: in_use()) as first, ForeignHost() as second:
        names = Names([(socket.AF_INET, (host.address, host.port)) for host in (first, second)])
        connector = Connector(NAME, HTTP, names.clock, names.resolve)
        for _ in range(3):
            asked(connector, names)
        assert (len(first.connected_at), second.connected_at) == (3, [])


def test_after_an_address_that_connects_and_stays_silent_the_next_one_is_tried() -> None:
    with ForeignHost(always=lambda request: Answer(silent=True)) as first, ForeignHost() as second:
        names = Names([(socket.AF_INET, (host.address, host.port)) for host in (first, second)])
        connector = Connector(NAME, HTTP, names.clock, names.resolve)
        asked(connector, names, timeout_seconds=1)
        asked(connector, names)
        assert (len(first.connected_at), len(second.requests)) == (1, 1)


def test_an_address_that_takes_no_connection_is_not_tried_first_again(names: Names) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = (socket.AF_INET, closed.getsockname())
    names.found.insert(0, nobody)
    connector = Connector(NAME, HTTP, names.clock, names.resolve)
    connector.connect(names.beat).close()
    assert connector._in_vain == [nobody]


def address(number: int) -> SockAddress:
    return socket.AF_INET, (f"192.0.2.{number}", 8100)


OLD, NEW, OTHER = address(1), address(2), address(3)


class Watched:
    """A name that is looked up as often as a test says."""

    def __init__(self) -> None:
        self.names = Names([OLD])
        self.watch = NameWatch("oldhost.example", 8100, self.names.clock, self.names.resolve)

    def looks(self, *found: list[SockAddress]) -> list[bool]:
        """What it says after each look-up that finds these."""
        said = []
        for each in found:
            self.names.found = each
            self.names.seconds += NAME_WATCH_SECONDS
            self.watch.has_moved(OLD)
            assert self.watch._look_up is not None
            assert self.watch._look_up.ended.wait(5)
            said.append(self.watch.has_moved(OLD))
        return said


def test_a_name_has_moved_after_some_look_ups_in_a_row_that_found_the_same_other_address() -> None:
    watched = Watched()
    assert watched.looks([OLD], [OLD, NEW]) == [False, False]
    assert watched.looks(*[[NEW]] * LOOK_UPS_TO_MOVE) == [False] * (LOOK_UPS_TO_MOVE - 1) + [True]


def test_a_name_whose_look_ups_fail_or_find_another_part_of_a_list_each_time_has_not_moved() -> None:
    watched = Watched()
    assert not any(watched.looks([NEW], [OTHER], [NEW], [OTHER], [], [], [], [OLD], [NEW], [NEW]))


def test_between_two_look_ups_the_name_server_is_left_alone() -> None:
    watched = Watched()
    watched.looks([OLD])
    assert [watched.watch.has_moved(OLD) for _ in range(10)] == [False] * 10
    assert watched.names.asked == 1


def test_an_address_is_no_name_and_can_not_move() -> None:
    watched = Watched()
    watch = NameWatch("192.0.2.1", 8100, watched.names.clock, watched.names.resolve)
    assert not watch.has_moved(OLD)
    assert watched.names.asked == 0
