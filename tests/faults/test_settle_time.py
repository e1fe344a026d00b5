"""The settle time is waited for whatever the database's clock does: this machine's steady clock checks it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.oldhost.ledger import TakenOver
from oldhost_sync.stack.mariadb import DatabaseUrls, EmbeddedMariaDB
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.ledger.maria_ledger import MariaLedger
from oldhost_sync.store.ledger.reconciliation import MachineClock
from tests.conformance.ledger_world import reserved
from tests.conformance.maria_world import HOST, MariaWorld
from tests.faults.database_clock import DatabaseClock

pytestmark = [pytest.mark.mariadb]

SETTLE_SECONDS = 60.0
# What the statements of a test take, at the very most.
TEST_SECONDS = 15.0
HOUR = 3600.0


@dataclass
class Place:
    """An operation is in doubt. `seconds`: how far the steady clocks of all machines have come;
    `clock`: the database's."""

    engine: Engine
    clock: DatabaseClock
    seconds: float = 0.0

    def take_over(self, machine: str = "one") -> TakenOver:
        """By a process that knows nothing: whatever was before, it was another one."""
        clock = MachineClock(lambda: time.monotonic() + self.seconds, machine)
        return MariaLedger(self.engine, HOST, timedelta(seconds=SETTLE_SECONDS), clock).take_over("a fresh process")

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds
        self.clock.offset_s += seconds

    def send(self, machine: str = "one") -> None:
        epoch = self.take_over(machine).epoch
        world = MariaWorld(self.engine, SETTLE_SECONDS)
        world.ledger.adopt_first(epoch, 1)
        (entry,) = world.ledger.reserve(epoch, [world.record()])
        world.ledger.advance(epoch, None, reserved(entry))


@pytest.fixture
def place(database: DatabaseUrls, mariadb_server: EmbeddedMariaDB) -> Iterator[Place]:
    with DatabaseClock(mariadb_server.port) as clock:
        engine = create_engine(clock.url(database.app))
        yield Place(engine, clock)
        engine.dispose()


def check_waits(taken: TakenOver, seconds: float) -> None:
    """But for the time that the test itself took."""
    assert (seconds - TEST_SECONDS) * 1000 < taken.settle_wait_ms <= seconds * 1000 + 100


def test_clock_set_forward_while_an_operation_is_in_doubt_shortens_no_wait(place: Place) -> None:
    place.send()
    place.clock.offset_s += HOUR
    check_waits(place.take_over(), SETTLE_SECONDS)


def test_clock_set_back_while_an_operation_is_in_doubt_shortens_no_wait(place: Place) -> None:
    place.send()
    place.clock.offset_s -= HOUR
    check_waits(place.take_over(), SETTLE_SECONDS)


def test_clock_set_forward_during_the_wait_does_not_end_it(place: Place) -> None:
    place.send()
    place.take_over()
    place.pass_by(20)
    place.clock.offset_s += HOUR
    check_waits(place.take_over(), SETTLE_SECONDS - 20)


def test_clock_set_forward_before_a_fresh_look_is_remembered_by_the_next(place: Place) -> None:
    place.send()
    place.clock.offset_s += HOUR
    place.take_over()
    place.pass_by(20)
    check_waits(place.take_over(), SETTLE_SECONDS - 20)


def test_machine_that_never_saw_the_clock_waits_for_all_of_the_settle_time_and_once(place: Place) -> None:
    place.send()
    place.pass_by(20)
    check_waits(place.take_over("other"), SETTLE_SECONDS)
    place.pass_by(SETTLE_SECONDS + 1)
    assert place.take_over("one").settle_wait_ms == 0
    assert place.take_over("other").settle_wait_ms == 0


def test_time_that_passes_for_both_clocks_is_counted(place: Place) -> None:
    place.send()
    place.pass_by(SETTLE_SECONDS - 20)
    check_waits(place.take_over(), 20)
