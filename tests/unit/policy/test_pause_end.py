"""A pause that ends by itself: an act of the writer's own, recorded before anything is sent."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.machine import operators
from oldhost_sync.policy.machine.actions import OpenSession
from oldhost_sync.policy.machine.machine import Machine, Pause
from oldhost_sync.policy.machine.snapshot import dump, load
from oldhost_sync.policy.rules.operator_act import END_PAUSE, ActRecorded, OperatorAct
from oldhost_sync.policy.tuning import WriterPolicy

END_MS = 40 * 60_000


@pytest.fixture
def machine() -> Machine:
    made = Machine(WriterPolicy(), 0)
    made.finish_loading(0)
    operators.follow(made, OperatorAct("h", "pause", "ana", "lunch", until_ms=END_MS), ActRecorded(), 0)
    made.decide(0)
    return made


def ends(machine: Machine, now_ms: int) -> list[OperatorAct]:
    return [each for each in machine.decide(now_ms) if isinstance(each, OperatorAct)]


def recorded_end(machine: Machine) -> None:
    (end,) = ends(machine, END_MS)
    operators.follow(machine, end, ActRecorded(message="noted"), END_MS)


def test_the_writer_wakes_for_the_end_of_the_pause(machine: Machine) -> None:
    machine.sweeping.at_ms = 2 * END_MS
    assert machine.wake_at_ms() == END_MS


def test_the_end_is_asked_for_once_at_its_time(machine: Machine) -> None:
    assert ends(machine, END_MS - 1) == []
    assert [(each.action, each.until_ms) for each in ends(machine, END_MS)] == [(END_PAUSE, END_MS)]
    assert ends(machine, END_MS + 1) == []


def test_nothing_is_opened_before_the_end_is_recorded(machine: Machine) -> None:
    assert not any(isinstance(each, OpenSession) for each in machine.decide(END_MS))
    assert machine.paused is not None


def test_a_recorded_end_opens_the_way(machine: Machine) -> None:
    recorded_end(machine)
    assert machine.paused is None
    assert any(isinstance(each, OpenSession) for each in machine.decide(END_MS + 1))


def test_a_draining_writer_leaves_the_end_to_the_next_run(machine: Machine) -> None:
    machine.draining = True
    assert ends(machine, END_MS) == []
    carried = load(dump(machine), WriterPolicy(), END_MS, release=machine.release)
    assert [each.action for each in ends(carried, END_MS)] == [END_PAUSE]


def test_how_long_nothing_can_be_sent_is_known_of_a_pause_with_an_end(machine: Machine) -> None:
    assert (machine.blocked_ms(60_000), machine.banned_ms(60_000)) == (END_MS - 60_000, 0)
    assert machine.pause_left_ms(END_MS + 5) == 0


def test_of_a_pause_without_an_end_it_is_not_known() -> None:
    machine = Machine(WriterPolicy(), 0)
    operators.pause(machine, "ana", "lunch")
    assert (machine.pause_left_ms(0), machine.blocked_ms(0)) == (None, 0)


def test_a_pause_that_the_database_knows_otherwise_is_taken_from_there(machine: Machine) -> None:
    operators.follow_database(machine, ["ben", "a new one", 2 * END_MS], 0, halted=False)
    assert machine.paused == Pause("ben", "a new one", 2 * END_MS)


def test_the_answer_says_until_when() -> None:
    machine = Machine(WriterPolicy(), 0)
    act = OperatorAct("h", "pause", "ana", "lunch", until_ms=1_800_000_000_000)
    assert operators.follow(machine, act, ActRecorded(), 0) == "paused until 2027-01-15 08:00:00+00:00"
