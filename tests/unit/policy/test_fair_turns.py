"""Properties take turns within TXN and LWW: a storm of one property does not make the others wait."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oldhost_sync.policy.changes import ChangeRef, EntityKey, PriorityClass
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.queue.coalescer import upcoming
from oldhost_sync.policy.queue.lanes import Rotation
from oldhost_sync.policy.tuning import OLDEST_TURN_EVERY, USUAL_PROMISES, Promises, WriterPolicy
from tests.unit.policy.test_coalescer import HOUR_S, Room, at

EMERGENCY, TXN, LWW = PriorityClass.EMERGENCY, PriorityClass.TXN, PriorityClass.LWW


def change(number: int, property_id: str, cls: PriorityClass = TXN, seconds: float = 0, unit: str = "") -> ChangeRef:
    return ChangeRef(number, cls, "unit", unit or f"{property_id}-{number}", "e", at(seconds), property_id)


def storm(room: Room, cls: PriorityClass = TXN, first: int = 1, last: int = 9) -> None:
    """Of property A; then one of B and one of C."""
    room.arrive(*[change(number, "A", cls) for number in range(first, last + 1)])
    room.arrive(change(last + 1, "B", cls), change(last + 2, "C", cls))


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.mark.parametrize("cls", [TXN, LWW])
def test_a_storm_of_one_property_leaves_the_others_their_turns(room: Room, cls: PriorityClass) -> None:
    storm(room, cls)
    assert room.all(120)[:4] == [1, 10, 2, 11]


def test_emergencies_go_as_they_came_whosever_they_are(room: Room) -> None:
    storm(room, EMERGENCY)
    assert room.all() == list(range(1, 12))


def test_each_property_goes_in_its_own_order(room: Room) -> None:
    chance = Random(1)
    refs = [change(number, chance.choice("ABC")) for number in range(1, 60)]
    room.arrive(*refs)
    order = room.all()
    for one in "ABC":
        own = [ref.change_id for ref in refs if ref.property_id == one]
        assert [number for number in order if number in own] == own


def test_what_has_no_property_takes_turns_as_one(room: Room) -> None:
    room.arrive(*[change(number, "", unit=f"u{number}") for number in range(1, 7)], change(7, "B"), change(8, "B"))
    assert room.all()[:4] == [1, 7, 2, 8]


def test_where_no_property_is_known_the_oldest_goes_first(room: Room) -> None:
    room.arrive(*[change(number, "") for number in range(1, 30)])
    assert room.all() == list(range(1, 30))


def test_a_property_that_was_quiet_goes_at_once_and_has_saved_nothing_up(room: Room) -> None:
    room.arrive(*[change(number, "AB"[number % 2]) for number in range(1, 20)])
    for _ in range(6):
        room.take()
    room.arrive(*[change(number, "C") for number in range(20, 26)])
    went = room.all()[:6]
    assert went[0] == 20
    assert sum(number >= 20 for number in went) == 2


def test_every_third_turn_is_the_oldest_changes(room: Room) -> None:
    room.arrive(*[change(number, "A") for number in range(1, 31)], *[change(number, "B") for number in range(31, 61)])
    room.arrive(*[change(number, "C") for number in range(61, 91)])
    order = room.all()[:30]
    assert sum(number <= 30 for number in order) > 10
    assert all(order[turn] == min(set(range(1, 91)) - set(order[:turn])) for turn in range(2, 30, OLDEST_TURN_EVERY))


def test_the_classes_have_their_turns_whatever_the_properties(room: Room) -> None:
    storm(room, LWW, 1, 9)
    room.fall_due(at(120))
    storm(room, TXN, 21, 40)
    order = room.all(120)[:16]
    assert ["TL"[number < 20] for number in order] == list("TTTL" * 4)


def test_what_a_turn_brings_along_of_its_unit_counts_for_the_property(room: Room) -> None:
    room.arrive(*[change(number, "A", LWW, unit=f"a{number}") for number in range(1, 4)])
    room.arrive(*[change(number, "A", unit=f"a{number - 3}") for number in range(4, 7)])
    room.arrive(change(7, "B"), change(8, "B"))
    assert room.all()[:5] == [1, 7, 4, 8, 2]


def test_a_unit_that_moves_to_another_property_keeps_the_order_of_its_changes(room: Room) -> None:
    room.arrive(change(1, "A", unit="other"), change(2, "A", unit="u"), change(3, "B", unit="u"), change(4, "B"))
    order = room.all()
    assert order.index(2) < order.index(3)
    assert sorted(order) == [1, 2, 3, 4]


def test_at_three_hours_the_oldest_of_the_lane_goes_first(room: Room) -> None:
    storm(room)
    room.arrive(*[change(number, "B", seconds=HOUR_S) for number in range(20, 24)], seconds=HOUR_S)
    assert room.all(3 * HOUR_S)[:11] == list(range(1, 12))


def test_where_an_hour_is_promised_the_oldest_goes_first_at_three_quarters_of_it(room: Room) -> None:
    room.turns.oldest_first_ms = Promises(consistency_ms=3_600_000).oldest_first_ms
    storm(room)
    room.arrive(*[change(number, "B", seconds=30 * 60) for number in range(20, 24)], seconds=30 * 60)
    assert room.all(46 * 60)[:11] == list(range(1, 12))
    assert Machine(WriterPolicy(consistency_ms=3_600_000), 0).coalescer.turns.oldest_first_ms == 2_700_000


@pytest.mark.parametrize(("service_ms", "takes_turns"), [(400.0, True), (USUAL_PROMISES.oldest_first_ms / 9, False)])
def test_properties_take_turns_while_the_oldest_can_go_last_and_be_in_time(
    room: Room, service_ms: float, takes_turns: bool
) -> None:
    """Eleven wait, then ten, then nine."""
    storm(room)
    order = [entry.ref.change_id for _ in range(3) for entry in room.take(at(0), service_ms)]
    assert order == ([1, 10, 2] if takes_turns else [1, 2, 3])


def test_what_waits_in_the_other_lane_counts_as_well(room: Room) -> None:
    storm(room, LWW, 1, 9)
    room.fall_due(at(120))
    room.arrive(*[change(number, "A") for number in range(21, 60)], change(60, "B"))
    assert [
        entry.ref.change_id for _ in range(3) for entry in room.take(at(120), USUAL_PROMISES.oldest_first_ms / 45)
    ] == [21, 22, 23]


def test_a_coalescer_that_is_loaded_takes_the_same_turns(room: Room) -> None:
    chance = Random(2)
    room.arrive(*[change(number, chance.choice("ABCD"), chance.choice([TXN, LWW])) for number in range(1, 80)])
    room.fall_due(at(120))
    loaded = Room()
    loaded.restore(room.entries())
    assert loaded.all(120) == room.all(120)


@pytest.mark.parametrize("seed", range(60))
def test_upcoming_knows_whose_turns_come(seed: int) -> None:
    chance = Random(seed)
    room = Room()
    for number in range(1, 90):
        cls = chance.choice([*PriorityClass, LWW, TXN][1 - seed % 2 :])
        property_id = chance.choice(["", *"AAAABC"])
        room.arrive(change(number, property_id, cls, unit=f"{property_id}{chance.randrange(4)}"))
    room.fall_due(at(180))
    for _ in range(chance.randrange(20)):
        room.take(at(180), 400.0)
    count = chance.randrange(1, 30)
    told = [ref.change_id for ref in upcoming(room, count, at(180), 400.0)]
    everything: list[int] = []
    while chain := room.take(at(180), 400.0):
        everything += [entry.ref.change_id for entry in chain]
    assert told == everything[:count]


@settings(deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(1, 60), min_size=2, max_size=8), chance=st.randoms(use_true_random=False))
def test_whoever_waits_has_a_turn_before_the_others_have_two_in_rotation(sizes: list[int], chance: Random) -> None:
    """Every third turn is the oldest's, so between two turns of a property lie at most half as many again, and one."""
    refs = [property_id for property_id, size in enumerate(sizes) for _ in range(size)]
    chance.shuffle(refs)
    room = Room()
    room.arrive(*[change(number, str(whose)) for number, whose in enumerate(refs, 1)])
    order = [refs[number - 1] for number in room.all()]
    for whose, size in enumerate(sizes):
        turns = [-1] + [turn for turn, one in enumerate(order) if one == whose]
        assert len(turns) == size + 1
        longest = max(later - earlier for earlier, later in pairwise(turns))
        assert longest <= len(sizes) * 3 / 2 + 1


@settings(deadline=None, derandomize=True)
@given(steps=st.lists(st.tuples(st.sampled_from("ssrc"), st.integers(0, 11)), max_size=80))
def test_a_rotation_forgets_what_is_no_head_any_more(steps: list[tuple[str, int]]) -> None:
    """Against a list that is searched anew each time."""
    shown: dict[EntityKey, tuple[int, int, str]] = {}
    rotation = Rotation()
    turns: dict[str, int] = {}
    for number, (step, which) in enumerate(steps, 1):
        entity = EntityKey("unit", f"u{which % 6}")
        if step in "sr" and entity in shown:
            rotation.hide(entity, shown.pop(entity))
        if step == "s":
            shown[entity] = (which, which, f"p{which % 3}")
            rotation.show(entity, shown[entity])
        elif step == "c":
            turns[f"p{which % 3}"] = number
            rotation.charge(f"p{which % 3}")
        expected = min(((turns.get(item[2], 0), (item, entity)) for entity, item in shown.items()), default=None)
        assert rotation.first() == (None if expected is None else expected[1])
