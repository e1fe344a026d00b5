"""What an operator gives up with a halt for lost changes, whatever the database's clock says."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection

from oldhost_sync.oldhost.errors import LedgerHalted
from oldhost_sync.policy.changes import ChangeResult
from tests.conformance.maria_world import MariaWorld

pytestmark = pytest.mark.mariadb

SetClock = Callable[[float], None]


@pytest.fixture
def ahead(world: MariaWorld) -> SetClock:
    """`ahead(seconds)`: from the next transaction on, the database's clock is that much ahead."""
    offset = [0.0]

    def set_clock(connection: Connection) -> None:
        connection.exec_driver_sql("SET timestamp = %s", (time.time() + offset[0],))

    event.listen(world.engine, "begin", set_clock)
    return lambda seconds: offset.__setitem__(0, seconds)


def lose(world: MariaWorld, entity_id: str) -> dict[int, int]:
    """A change that the writer knows, by its id and its acceptance, and that a fail-over has lost."""
    change_id = world.record(entity_id)
    known = {change_id: world.accepted_at_ms(change_id)}
    world.execute("DELETE FROM outbox_events WHERE id = %s", change_id)
    return known


def resolved(world: MariaWorld, epoch: int, known: dict[int, int]) -> int:
    """The epoch after a halt for the first of these lost changes, which an operator has resolved."""
    first = min(known)
    with pytest.raises(LedgerHalted):
        world.ledger.reserve(epoch, [first], known)
    assert world.decide("resolve", mode="adopt") == ""
    next_epoch = world.ledger.take_over("next").epoch
    newest = max(known)
    world.ledger.check_known(next_epoch, newest, known[newest])
    return next_epoch


def test_what_is_lost_after_a_resolve_halts_although_the_clock_was_ahead_at_the_resolve(
    world: MariaWorld, epoch: int, ahead: SetClock
) -> None:
    ahead(7200)
    next_epoch = resolved(world, epoch, lose(world, "u1"))
    ahead(0)
    later = lose(world, "u2")
    with pytest.raises(LedgerHalted, match="not in the database"):
        world.ledger.reserve(next_epoch, list(later), later)


def test_the_next_opening_after_that_halts_too(world: MariaWorld, epoch: int, ahead: SetClock) -> None:
    ahead(7200)
    next_epoch = resolved(world, epoch, lose(world, "u1"))
    ahead(0)
    ((change_id, accepted_at_ms),) = lose(world, "u2").items()
    with pytest.raises(LedgerHalted, match="not in the database"):
        world.ledger.check_known(next_epoch, change_id, accepted_at_ms)


def test_one_resolve_gives_up_all_that_was_lost_before_it(world: MariaWorld, epoch: int) -> None:
    """The halt names the oldest; the others have higher ids than all in the database."""
    known = lose(world, "u1") | lose(world, "u2") | lose(world, "u3")
    next_epoch = resolved(world, epoch, known)
    entries = world.ledger.reserve(next_epoch, list(known), known)
    assert [one.outcome for one in entries if isinstance(one, ChangeResult)] == ["DISCARDED"] * 3
