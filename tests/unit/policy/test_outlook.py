"""The outlook that the writer gives of itself."""

from __future__ import annotations

from collections import Counter

from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.forecast.outlook import PROPERTIES_MAX, LaneOutlook, Outlook
from oldhost_sync.policy.machine.events import OpeningPostponed, SessionOpened
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.machine.operators import pause
from oldhost_sync.policy.machine.snapshot import dump, load
from oldhost_sync.policy.queue.operations import Ages, PendingOperation
from oldhost_sync.policy.tuning import WriterPolicy
from tests.unit.policy.play import START_MS
from workflows import status_report


def a_machine() -> Machine:
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    machine.decide(START_MS)
    return machine


def opened(machine: Machine) -> Machine:
    machine.opening_ended(SessionOpened(1, "queue", 1), START_MS)
    return machine


def txn(number: int, property_id: str) -> ChangeRef:
    return ChangeRef(number, PriorityClass.TXN, "unit", f"u{number}", "e", START_MS, property_id)


def test_nobody_knows_when_a_paused_writer_or_one_without_oldhost_goes_on() -> None:
    machine = opened(a_machine())
    assert status_report.outlook(machine, START_MS) is not None
    pause(machine, "anna", "audit")
    assert status_report.outlook(machine, START_MS) is None
    away = a_machine()
    away.opening_ended(OpeningPostponed(1_000, "connection"), START_MS)
    assert status_report.outlook(away, START_MS) is None


def test_it_is_known_when_a_pause_with_an_end_goes_on() -> None:
    machine = opened(a_machine())
    pause(machine, "anna", "audit", START_MS + 60_000)
    assert status_report.outlook(machine, START_MS) is not None


def test_it_survives_the_way_to_the_api() -> None:
    machine = opened(a_machine())
    machine.enqueue([txn(number, f"p{number % 3}") for number in range(1, 50)], START_MS)
    found = status_report.outlook(machine, START_MS)
    assert found is not None
    assert Outlook.from_json(found).to_json() == found
    assert found["txn"]["waiting"] == 49
    assert found["txn"]["work_ms"] == 49 * 400


def test_what_waits_is_counted_by_property_however_it_came_in() -> None:
    machine = opened(a_machine())
    machine.enqueue([txn(number, f"p{number % 7}") for number in range(1, 100)], START_MS)
    machine.decide(START_MS)
    waiting = machine.coalescer.waiting.values()
    assert machine.coalescer.ages[PriorityClass.TXN].by_property == Counter(one.ref.property_id for one in waiting)
    again = load(dump(machine), WriterPolicy(), START_MS)
    assert again.coalescer.ages[PriorityClass.TXN].by_property == Counter(
        one.ref.property_id for one in again.coalescer.waiting.values()
    )


def test_of_very_many_properties_the_small_ones_count_as_their_average() -> None:
    ages = Ages()
    for number in range(3 * PROPERTIES_MAX):
        ages.add(PendingOperation(txn(number, f"p{number}"), START_MS, START_MS))
    lane = LaneOutlook.of(ages, 1_000)
    assert len(lane.largest or {}) == PROPERTIES_MAX
    assert lane.ahead("p299", {}) == (3 * PROPERTIES_MAX, 3 * PROPERTIES_MAX)
