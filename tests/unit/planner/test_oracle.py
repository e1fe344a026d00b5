"""The oracle's bounds, on cases small enough to count by hand."""

from __future__ import annotations

from oldhost_sync.planner import Arrival, bounds
from oldhost_sync.policy.changes import PriorityClass


def change(number: int, at_ms: int, cls: PriorityClass, entity: str, event: str = "e") -> Arrival:
    return Arrival(number, at_ms, cls, "unit", entity, event)


LWW, TXN, EMERGENCY = PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY


def test_a_key_needs_one_operation_however_often_it_changes() -> None:
    assert bounds([change(n, n * 1000, LWW, "a") for n in range(1, 9)], 400).operations == 1


def test_every_emergency_and_every_txn_needs_its_own() -> None:
    changes = [change(1, 0, TXN, "a"), change(2, 0, TXN, "a"), change(3, 0, EMERGENCY, "a")]
    assert bounds(changes, 400).operations == 3


def test_event_types_do_not_replace_one_another() -> None:
    assert bounds([change(1, 0, LWW, "a", "status"), change(2, 0, LWW, "a", "rate")], 400).operations == 2


def test_a_key_can_go_when_its_last_change_is_there() -> None:
    assert bounds([change(1, 0, LWW, "a"), change(2, 5_000, LWW, "a")], 400).drained_ms == 5_400


def test_operations_go_one_after_the_other() -> None:
    assert bounds([change(n, 0, TXN, str(n)) for n in range(1, 6)], 400).drained_ms == 2_000


def test_nothing_goes_during_a_ban() -> None:
    assert bounds([change(1, 0, TXN, "a"), change(2, 500, TXN, "b")], 400, (450, 10_000)).drained_ms == 10_400


def test_no_changes_need_no_operations() -> None:
    assert bounds([], 400).operations == 0
