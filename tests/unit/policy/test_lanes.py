"""Lanes and turns: one head per entity, EMERGENCY absolute, TXN and LWW 3:1 while both can go."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from oldhost_sync.policy.changes import EntityKey, PriorityClass
from oldhost_sync.policy.queue.lanes import Lane, WeightedRoundRobin

U, V = EntityKey("unit", "u"), EntityKey("unit", "v")


def turns(*, txn: int, lww: int, ratio: int = 3) -> str:
    """The letters of the classes in the order of their turns."""
    chooser = WeightedRoundRobin(ratio)
    order = ""
    while txn or lww:
        turn = chooser.choose(emergency=False, txn=txn > 0, lww=lww > 0)
        assert turn is not None
        txn, lww = txn - (turn is PriorityClass.TXN), lww - (turn is PriorityClass.LWW)
        order += turn.value[0]
    return order


def test_a_lane_gives_the_lowest_position_first() -> None:
    lane = Lane()
    lane.add(V, (2, 2, ""))
    lane.add(U, (1, 1, ""))
    assert lane.head() == (U, 1)


def test_a_lane_shows_an_entitys_next_item_after_its_first() -> None:
    lane = Lane()
    lane.add(U, (1, 1, ""))
    lane.add(U, (3, 3, ""))
    lane.add(V, (2, 2, ""))
    lane.remove(U, (1, 1, ""))
    assert lane.head() == (V, 2)
    assert len(lane) == 2


def test_an_empty_lane_has_no_head() -> None:
    lane = Lane()
    lane.add(U, (1, 1, ""))
    lane.remove(U, (1, 1, ""))
    assert lane.head() is None
    assert len(lane) == 0


def test_first_shows_all_items_in_order() -> None:
    lane = Lane()
    lane.add(U, (1, 1, ""))
    lane.add(V, (2, 2, ""))
    assert [entity for _, entity in lane.first(5)] == [U, V]


def test_an_emergency_goes_before_all() -> None:
    assert WeightedRoundRobin(3).choose(emergency=True, txn=True, lww=True) is PriorityClass.EMERGENCY


def test_nobody_waiting_is_nobodys_turn() -> None:
    assert WeightedRoundRobin(3).choose(emergency=False, txn=False, lww=False) is None


def test_txn_and_lww_take_turns_three_to_one() -> None:
    assert turns(txn=7, lww=3) == "TTTLTTTLTL"


def test_trap_12_an_empty_lane_wastes_no_turn() -> None:
    assert turns(txn=5, lww=0) == "TTTTT"
    assert turns(txn=0, lww=5) == "LLLLL"
    assert turns(txn=1, lww=3) == "TLLL"


def test_turns_alone_earn_no_credit() -> None:
    """LWW that went by itself owes TXN nothing, nor the other way round."""
    chooser = WeightedRoundRobin(3)
    for _ in range(9):
        chooser.choose(emergency=False, txn=True, lww=False)
    order = [chooser.choose(emergency=False, txn=True, lww=True) for _ in range(4)]
    assert [turn.value[0] for turn in order if turn] == ["T", "T", "T", "L"]


def test_an_emergency_in_between_costs_no_turn() -> None:
    chooser = WeightedRoundRobin(3)
    chooser.choose(emergency=False, txn=True, lww=True)
    chooser.choose(emergency=True, txn=True, lww=True)
    order = [chooser.choose(emergency=False, txn=True, lww=True) for _ in range(3)]
    assert [turn.value[0] for turn in order if turn] == ["T", "T", "L"]


@settings(deadline=None, derandomize=True)
@given(txn=st.integers(0, 40), lww=st.integers(0, 40), ratio=st.integers(1, 5))
def test_while_both_wait_every_window_holds_the_ratio(txn: int, lww: int, ratio: int) -> None:
    """And nothing is lost or idle: as many turns as there are operations."""
    order = turns(txn=txn, lww=lww, ratio=ratio)
    assert (order.count("T"), order.count("L")) == (txn, lww)
    contested = order[: min(order.rfind("T"), order.rfind("L")) + 1]
    for start in range(len(contested) - ratio):
        assert contested[start : start + ratio + 1].count("L") == 1
