"""How often an operation goes to MariaDB and back: where that is far away, nothing else costs so much."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oldhost_sync.drivers.events import Applied, Rejected
from oldhost_sync.oldhost.ledger import Answered, Reserved
from oldhost_sync.stack.mariadb import DatabaseUrls, EmbeddedMariaDB
from oldhost_sync.store.engine import create_engine
from tests.conformance.maria_world import MariaWorld
from tests.faults.database_proxy import DatabaseProxy

pytestmark = pytest.mark.mariadb

RESERVATION, ADVANCE = 2, 1


class FarWorld(MariaWorld):
    """`trips(most)`: what is done meanwhile takes no more round trips."""

    proxy: DatabaseProxy

    @contextmanager
    def trips(self, most: int) -> Iterator[None]:
        before = len(self.proxy.asked)
        yield
        asked = self.proxy.asked[before:]
        assert len(asked) <= most, asked


@pytest.fixture
def world(mariadb_server: EmbeddedMariaDB, database: DatabaseUrls) -> Iterator[FarWorld]:
    with DatabaseProxy(mariadb_server.port) as proxy:
        engine = create_engine(proxy.url(database.app), pool_size=1)
        world = FarWorld(engine, 10.0)
        world.proxy = proxy
        yield world
        engine.dispose()


def reserved(world: FarWorld, epoch: int, *event_types: str) -> list[Reserved]:
    ids = [world.record(f"u{number}", event_type) for number, event_type in enumerate(event_types)]
    with world.trips(RESERVATION):
        operations = world.ledger.reserve(epoch, ids)
    return [operation for operation in operations if isinstance(operation, Reserved)]


def test_a_reservation_of_many_changes_takes_few_round_trips(world: FarWorld, epoch: int) -> None:
    assert len(reserved(world, epoch, *["booking_created", "unit_status_changed"] * 4)) == 8


@pytest.mark.parametrize("event_type", ["booking_created", "unit_status_changed"])
def test_an_answer_is_recorded_and_the_next_operation_marked_in_few_round_trips(
    world: FarWorld, epoch: int, event_type: str
) -> None:
    first, second = reserved(world, epoch, event_type, event_type)
    with world.trips(ADVANCE):
        world.ledger.advance(epoch, None, first)
    with world.trips(ADVANCE):
        world.ledger.advance(epoch, Answered(first, Applied(502)), second)
    with world.trips(ADVANCE):
        world.ledger.advance(epoch, Answered(second, Rejected("no", consumed=True)), None)
