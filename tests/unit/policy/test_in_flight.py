"""In flight: what has left the waiting room until its end is known."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.queue.operations import InFlight, PendingOperation


def entry(change_id: int, unit: str = "u", event_type: str = "e") -> PendingOperation:
    return PendingOperation(ChangeRef(change_id, PriorityClass.LWW, "unit", unit, event_type, 0), 0, 0, ready=True)


@pytest.fixture
def in_flight() -> InFlight:
    return InFlight()


def test_leaving_forgets_that_it_was_bound_or_in_doubt(in_flight: InFlight) -> None:
    in_flight.enter(entry(1))
    in_flight.bound, in_flight.in_doubt = [1], [1]
    in_flight.leave(1)
    assert in_flight.bound == []
    assert in_flight.in_doubt == []


def test_a_batch_keeps_the_order_it_was_given(in_flight: InFlight) -> None:
    in_flight.start(1, [entry(3, "a"), entry(2, "b")])
    assert in_flight.sends == {1: [3, 2]}


def test_the_newest_of_a_key_is_known(in_flight: InFlight) -> None:
    in_flight.start(1, [entry(3), entry(7, event_type="other")])
    assert in_flight.newest(entry(1).ref.key) == 3
    assert in_flight.newest(entry(1, "elsewhere").ref.key) == 0
