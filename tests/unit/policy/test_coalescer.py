"""The coalescer: debounce with a cap, keys, order per entity, holds. Times are minutes and seconds from a start."""

from __future__ import annotations

from random import Random

import pytest

from oldhost_sync.policy.changes import ChangeRef, EntityKey, PriorityClass
from oldhost_sync.policy.queue.coalescer import Added, Coalescer, near, upcoming
from oldhost_sync.policy.queue.operations import PendingOperation

START_MS = 1_700_000_000_000
U = EntityKey("unit", "u")


def at(seconds: float) -> int:
    return START_MS + round(1000 * seconds)


def lww(change_id: int, seconds: float = 0, unit: str = "u", event_type: str = "status") -> ChangeRef:
    return ChangeRef(change_id, PriorityClass.LWW, "unit", unit, event_type, at(seconds))


def txn(change_id: int, unit: str = "u", seconds: float = 0) -> ChangeRef:
    return ChangeRef(change_id, PriorityClass.TXN, "unit", unit, "booking", at(seconds))


def emergency(change_id: int, unit: str = "u") -> ChangeRef:
    return ChangeRef(change_id, PriorityClass.EMERGENCY, "unit", unit, "locked_out", at(0))


class Room(Coalescer):
    """A coalescer with the product's figures, and takes told as ids."""

    def __init__(self) -> None:
        super().__init__(debounce_ms=120_000, max_wait_ms=600_000, txn_per_lww=3)

    def arrive(self, *refs: ChangeRef, seconds: float = 0) -> None:
        for ref in refs:
            self.add(ref, at(seconds))

    def go(self, seconds: float = 0) -> list[int]:
        """Take one turn."""
        self.fall_due(at(seconds))
        return [entry.ref.change_id for entry in self.take(at(seconds))]

    def all(self, seconds: float = 0) -> list[int]:
        order: list[int] = []
        while chain := self.go(seconds):
            order += chain
        return order


@pytest.fixture
def room() -> Room:
    return Room()


# ---------------------------------------------------------------------------------------------------------- debounce


def test_an_lww_change_waits_two_minutes(room: Room) -> None:
    room.arrive(lww(1))
    assert room.go(119.999) == []
    assert room.go(120) == [1]


def test_a_txn_and_an_emergency_wait_for_nothing(room: Room) -> None:
    room.arrive(txn(1, "u"), emergency(2, "v"))
    assert room.all() == [2, 1]


def test_a_newer_change_restarts_the_debounce_and_replaces_the_older(room: Room) -> None:
    room.arrive(lww(1))
    assert room.add(lww(2, 100), at(100)) is Added.REPLACED_OLDER
    assert room.go(219) == []
    assert room.go(220) == [2]
    assert room.all(10_000) == []


def test_trap_06_an_older_event_leaves_the_newer_ones_timer_alone(room: Room) -> None:
    room.arrive(lww(2))
    assert room.add(lww(1, 60), at(60)) is Added.SUPERSEDED
    assert room.next_due_at_ms() == at(120)
    assert room.all(120) == [2]


def test_trap_07_a_unit_that_changes_every_119_seconds_is_sent_after_ten_minutes(room: Room) -> None:
    sent: list[tuple[float, int]] = []
    for number in range(12):
        room.arrive(lww(number + 1, 119 * number), seconds=119 * number)
        due_at_ms = room.next_due_at_ms()
        assert due_at_ms is not None
        if due_at_ms <= at(119 * (number + 1)):
            sent += [((due_at_ms - START_MS) / 1000, one) for one in room.go((due_at_ms - START_MS) / 1000)]
    assert sent[0] == (600, 6)


def test_the_cap_begins_anew_after_a_send(room: Room) -> None:
    room.arrive(lww(1))
    room.go(120)
    room.arrive(lww(2, 200), seconds=200)
    assert room.next_due_at_ms() == at(320)


def test_a_late_delivery_has_waited_already(room: Room) -> None:
    room.arrive(lww(1, 0), seconds=90)
    assert room.next_due_at_ms() == at(120)


def test_a_clock_that_runs_ahead_does_not_lengthen_the_debounce(room: Room) -> None:
    room.arrive(lww(1, 500), seconds=0)
    assert room.next_due_at_ms() == at(120)


def test_a_key_in_its_lane_goes_on_coalescing_and_keeps_its_place(room: Room) -> None:
    room.arrive(lww(1, unit="u"))
    room.arrive(lww(2, 10, unit="v"), seconds=10)
    room.fall_due(at(200))
    room.arrive(lww(3, 200, unit="u"), seconds=200)
    assert room.all(200) == [3, 2]


def test_keys_go_in_the_order_of_their_first_changes(room: Room) -> None:
    room.arrive(lww(1, unit="u"))
    room.arrive(lww(2, 10, unit="v"), seconds=10)
    room.arrive(lww(3, 100, unit="u"), seconds=100)
    assert room.all(220) == [3, 2]


def test_a_flush_ends_the_debounce_of_the_wanted_only(room: Room) -> None:
    room.arrive(lww(1, unit="u"), lww(2, unit="v"))
    assert room.flush(EntityKey("unit", "v"), at(5)) == 1
    assert room.all(5) == [2]


def test_a_flush_of_many_moves_them_step_by_step(room: Room) -> None:
    room.arrive(*[lww(number, unit=f"u{number}") for number in range(1, 8)])
    assert room.flush(None, at(5)) == 7
    left = []
    while room.debounced_count:
        room.fall_due(at(5), 3)
        left.append(room.debounced_count)
    assert left == [4, 1, 0]
    assert room.all(5) == [1, 2, 3, 4, 5, 6, 7]


def test_what_is_flushed_wakes_the_writer_until_all_has_moved(room: Room) -> None:
    room.arrive(lww(1, unit="u"), lww(2, unit="v"))
    room.flush(None, at(5))
    room.fall_due(at(6), 1)
    assert room.next_due_at_ms() == at(5)
    room.fall_due(at(6), 1)
    assert room.next_due_at_ms() is None


def test_a_flush_counts_each_key_once(room: Room) -> None:
    room.arrive(lww(1, unit="u"), lww(2, unit="v"))
    assert (room.flush(U, at(1)), room.flush(None, at(2)), room.flush(None, at(3))) == (1, 1, 0)


def test_a_flushed_key_that_goes_on_changing_goes_all_the_same(room: Room) -> None:
    room.arrive(lww(1))
    room.flush(None, at(5))
    room.arrive(lww(2, 6), seconds=6)
    assert room.all(6) == [2]


def test_a_flushed_change_that_was_taken_and_put_back_is_ready(room: Room) -> None:
    room.arrive(lww(1), emergency(2))
    room.flush(None, at(5))
    first, _ = room.take()
    room.requeue(first)
    assert first.due_at_ms == at(5)
    assert room.all(6) == [1]


def test_what_is_due_moves_step_by_step_those_due_longest_first(room: Room) -> None:
    for number in range(1, 8):
        room.arrive(lww(number, number, unit=f"u{number}"), seconds=number)
    room.fall_due(at(500), 3)
    assert [entry.ref.change_id for entry in room.entries() if entry.ready] == [1, 2, 3]
    assert room.next_due_at_ms() == at(124)


def test_ages_are_right_after_a_flush(room: Room) -> None:
    room.arrive(lww(1, unit="u"), lww(2, unit="v"))
    room.flush(None, at(30))
    room.fall_due(at(60))
    restored = Room()
    restored.restore(room.entries())
    for cls, ages in room.ages.items():
        assert list(ages.in_order()) == list(restored.ages[cls].in_order())


def test_trap_09_another_event_type_is_another_key(room: Room) -> None:
    """'Clean' does not replace a waiting 'door code changed'."""
    room.arrive(lww(1, event_type="door_code"))
    assert room.add(lww(2, event_type="status"), at(0)) is Added.NEW
    assert room.all(120) == [1, 2]


# ------------------------------------------------------------------------------------------------- order of an entity


def test_trap_11_an_emergency_takes_its_entitys_older_change_along(room: Room) -> None:
    room.arrive(lww(1), emergency(2))
    assert room.go() == [1, 2]


def test_an_emergency_leaves_younger_changes_of_its_entity_behind(room: Room) -> None:
    room.arrive(emergency(1), lww(2))
    assert room.go() == [1]


def test_an_emergency_takes_all_that_goes_before_it_along(room: Room) -> None:
    room.arrive(lww(1), txn(2), emergency(3))
    assert room.go() == [1, 2, 3]


def test_a_txn_lets_the_older_debounced_change_of_its_entity_go_first(room: Room) -> None:
    room.arrive(lww(1), txn(2))
    assert room.all() == [1, 2]


def test_an_emergency_does_not_wait_for_other_entities(room: Room) -> None:
    room.arrive(txn(1, "v"), lww(2, unit="w"), emergency(3, "u"))
    assert room.go() == [3]


def test_an_entity_with_something_in_flight_goes_on_in_its_order(room: Room) -> None:
    room.arrive(txn(1), txn(2), txn(3, "v"))
    assert [entry.ref.change_id for entry in room.take()] == [1]
    assert [entry.ref.change_id for entry in room.take()] == [2]


def test_trap_10_a_key_in_flight_gets_a_new_entry(room: Room) -> None:
    """Version 1 on its way says nothing of version 2, which waits for its own turn."""
    room.arrive(lww(1))
    room.fall_due(at(120))
    room.take()
    assert room.add(lww(2, 120), at(120)) is Added.NEW
    assert 2 in room.waiting
    assert room.all(240) == [2]


# --------------------------------------------------------------------------------------------------------- put back


def test_what_was_not_sent_waits_where_it_was(room: Room) -> None:
    room.arrive(txn(1), txn(2, "v"))
    (entry,) = room.take()
    room.requeue(entry)
    assert room.all() == [1, 2]


def test_what_was_not_sent_gives_its_place_to_a_newer_one_of_its_key(room: Room) -> None:
    room.arrive(lww(1, 0, unit="u"), lww(2, 1, unit="v"), seconds=1)
    room.fall_due(at(130))
    (entry,) = room.take()
    room.arrive(lww(3, 130, unit="u"), seconds=130)
    assert room.requeue(entry) is Added.SUPERSEDED
    assert room.all(130) == [3, 2]


def test_what_was_not_sent_replaces_an_older_one_of_its_key_that_was_retried_meanwhile(room: Room) -> None:
    """The ledger sends neither while both wait: the older is passed, the newer waits for what is held behind it."""
    room.arrive(lww(2))
    room.fall_due(at(130))
    (newer,) = room.take()
    room.hold(U, 1)
    assert room.requeue(PendingOperation(lww(1), at(0), at(0), ready=True)) is Added.NEW
    assert room.requeue(newer) is Added.REPLACED_OLDER
    assert room.holds == {}
    assert room.all(130) == [2]


def test_what_went_early_with_another_still_has_the_cap_when_put_back(room: Room) -> None:
    room.arrive(lww(1), emergency(2))
    first, second = room.take()
    room.arrive(lww(3, 590), seconds=590)
    room.requeue(first)
    room.requeue(second)
    assert room.next_due_at_ms() == at(600)


# ------------------------------------------------------------------------------------------------------------- holds


def test_a_rejection_holds_the_later_txn_changes_of_its_entity(room: Room) -> None:
    room.arrive(txn(2))
    room.hold(U, 1)
    room.arrive(txn(3), txn(4, "v"))
    assert room.all() == [4]
    assert room.held_count == 2


def test_emergencies_and_lww_flow_past_a_hold(room: Room) -> None:
    room.hold(U, 1)
    room.arrive(txn(2), lww(3), emergency(4))
    assert room.all(120) == [3, 4]


def test_what_is_held_is_forgotten_here_and_read_again_when_the_last_dead_letter_is_decided(room: Room) -> None:
    room.arrive(txn(2))
    room.hold(U, 1)
    room.arrive(txn(3))
    assert len(room.waiting) == 0
    assert room.add(txn(3), at(0)) is Added.HELD
    assert room.held_count == 2
    room.unhold(U, 1)
    assert list(room.released) == [U]


def test_what_came_before_every_dead_letter_of_its_entity_goes(room: Room) -> None:
    room.hold(U, 5)
    room.arrive(txn(4), txn(6))
    assert room.all() == [4]


def test_what_only_the_oldest_dead_letter_held_is_read_again_when_that_is_decided(room: Room) -> None:
    room.hold(U, 1)
    room.hold(U, 5)
    room.unhold(U, 5)
    assert list(room.released) == []
    room.hold(U, 5)
    room.unhold(U, 1)
    assert list(room.released) == [U]
    room.arrive(txn(3), txn(6))
    assert room.all() == [3]


def test_a_retried_change_goes_while_those_behind_it_are_held(room: Room) -> None:
    room.hold(U, 1)
    room.arrive(txn(2))
    room.requeue(PendingOperation(txn(1), at(0), at(0), ready=True))
    assert room.all() == [1]


def test_a_retried_change_behind_an_older_dead_letter_is_held_as_any_other(room: Room) -> None:
    room.hold(U, 1)
    room.hold(U, 4)
    room.waits_again(U, 4)
    assert room.add(txn(4), at(0)) is Added.HELD
    assert room.holds[U].dead == [1]


def test_a_retried_change_that_is_replaced_lets_the_held_be_read_again(room: Room) -> None:
    room.hold(U, 1)
    room.requeue(PendingOperation(lww(1), at(0), at(0), ready=True))
    room.arrive(lww(3))
    assert list(room.released) == [U]


def test_a_hold_forgets_the_txn_changes_of_its_entity_only(room: Room) -> None:
    room.arrive(txn(2), lww(3), emergency(4), txn(5), txn(6, "v"))
    assert room.hold(U, 1) == 2
    assert len(room.lanes[PriorityClass.TXN]) == 1
    assert room.all(120) == [3, 4, 6]


# ------------------------------------------------------------------------------------------------------------- turns


def fill_lanes(room: Room) -> None:
    """Of u two LWW keys and then TXN changes, of w LWW keys, of v TXN changes, all of them ready."""
    room.arrive(lww(1), lww(2, event_type="door"), *[lww(number, unit=f"w{number}") for number in range(3, 9)])
    room.fall_due(at(120))
    room.arrive(txn(11), *[txn(number, f"v{number}") for number in range(12, 18)])


def test_an_lww_change_that_a_txn_of_its_entity_brings_along_is_charged_to_lww(room: Room) -> None:
    fill_lanes(room)
    assert room.all(120)[:9] == [1, 2, 11, 12, 13, 3, 14, 15, 16]


HOUR_S = 3_600


def test_at_three_hours_the_older_head_goes_first_whatever_its_lane(room: Room) -> None:
    room.arrive(*[lww(number, number, unit=f"w{number}") for number in range(1, 4)], seconds=3)
    room.arrive(*[txn(number, f"v{number}", HOUR_S) for number in range(11, 16)], seconds=HOUR_S)
    assert room.all(3 * HOUR_S + 2) == [1, 2, 11, 12, 13, 3, 14, 15]


def test_at_three_hours_txn_goes_before_lww_that_came_later(room: Room) -> None:
    room.arrive(*[txn(number, f"v{number}") for number in range(1, 7)])
    room.arrive(lww(11, 200, unit="w"), seconds=200)
    assert room.all(3 * HOUR_S) == [1, 2, 3, 4, 5, 6, 11]


def test_an_emergency_goes_before_what_is_too_old(room: Room) -> None:
    room.arrive(lww(1, unit="w"), txn(2, "v"), emergency(3, "x"))
    assert room.all(3 * HOUR_S) == [3, 2, 1]


def test_upcoming_knows_what_is_too_old_for_turns(room: Room) -> None:
    room.arrive(*[lww(number, number, unit=f"w{number}") for number in range(1, 4)], seconds=3)
    room.arrive(*[txn(number, f"v{number}", HOUR_S) for number in range(11, 16)], seconds=HOUR_S)
    room.fall_due(at(3 * HOUR_S))
    assert [ref.change_id for ref in upcoming(room, 3, at(3 * HOUR_S + 2))] == [1, 2, 11]


def test_a_txn_change_that_a_txn_brings_along_is_charged_to_nobody_else(room: Room) -> None:
    room.arrive(lww(1, unit="w"))
    room.fall_due(at(120))
    room.arrive(txn(2), txn(3), txn(4), txn(5))
    assert room.all(120) == [2, 3, 4, 1, 5]


# ---------------------------------------------------------------------------------------------------------- upcoming


def test_upcoming_is_what_would_go_and_changes_nothing(room: Room) -> None:
    room.arrive(lww(1), txn(2), txn(3, "v"), emergency(4, "w"))
    told = [ref.change_id for ref in upcoming(room, 10)]
    assert told in ([4, 1, 2, 3], [4, 1, 3, 2])
    assert room.all() == told


def test_upcoming_gives_no_more_than_asked(room: Room) -> None:
    room.arrive(*[txn(number, f"u{number}") for number in range(1, 30)])
    assert [ref.change_id for ref in upcoming(room, 3)] == [1, 2, 3]


def test_older_change_that_is_read_again_bounds_the_wait_of_the_newer_one() -> None:
    room = Room()
    room.arrive(lww(7, 550), seconds=550)
    room.inherit(lww(5, 0))
    assert room.go(599.9) == []
    assert room.go(600) == [7]


def test_newer_change_that_is_read_again_moves_no_timer() -> None:
    room = Room()
    room.arrive(lww(7, 0), seconds=0)
    room.inherit(lww(5, 10))
    assert room.next_due_at_ms() == at(120)


@pytest.mark.parametrize("seed", range(60))
def test_upcoming_is_the_beginning_of_all_that_would_go(seed: int) -> None:
    chance = Random(seed)
    room = Room()
    for number in range(1, 80):
        cls = chance.choice([*PriorityClass, PriorityClass.LWW][1 - seed % 2 :])
        room.arrive(
            ChangeRef(number, cls, "unit", f"u{chance.randrange(6)}", "e", at(0)), seconds=chance.randrange(100)
        )
    room.fall_due(at(180))
    count = chance.randrange(1, 30)
    told = [ref.change_id for ref in upcoming(room, count)]
    everything: list[int] = []
    while chain := room.take():
        everything += [entry.ref.change_id for entry in chain]
    assert told == everything[:count]


def test_upcoming_copies_few_however_much_one_entity_has(room: Room) -> None:
    room.arrive(*[txn(number) for number in range(1, 5_000)], emergency(5_000))
    assert len(near(room, 20)) <= 3 * 2 * 20
    assert [ref.change_id for ref in upcoming(room, 20)] == list(range(1, 21))
