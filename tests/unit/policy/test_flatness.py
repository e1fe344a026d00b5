"""Work per event does not grow with the backlog: lines of Python executed, counted, never timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from oldhost_sync.policy.changes import ChangeRef, ChangeResult, EntityKey, Outcome, PriorityClass
from oldhost_sync.policy.machine import machine as machine_module
from oldhost_sync.policy.machine import snapshot
from oldhost_sync.policy.machine.actions import Send
from oldhost_sync.policy.machine.events import SendEnded, SessionOpened
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.queue.operations import CELL_MS, CELLS_MAX, Ages, PendingOperation
from oldhost_sync.policy.tuning import MOVED_AT_ONCE_MAX, SEND_OPERATIONS_MAX, WriterPolicy
from tests.unit.policy.play import START_MS
from workflows import status_report

SMALL, LARGE = 100, 10_000


def lines_of(act: Callable[[], object]) -> int:
    """How many lines of the policy an act executes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "policy" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def ref(number: int, cls: PriorityClass = PriorityClass.LWW) -> ChangeRef:
    """Of as many properties as there are tens of changes."""
    return ChangeRef(number, cls, "unit", f"u{number}", "e", START_MS, f"p{number // 10}")


def full(size: int) -> Machine:
    """`size` of each class waiting, a session open, two in flight."""
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    machine.decide(START_MS)
    machine.opening_ended(SessionOpened(1, "queue", 1), START_MS)
    for offset, cls in enumerate(PriorityClass):
        machine.enqueue((ref(1 + 3 * number + offset, cls) for number in range(size)), START_MS)
    machine.decide(START_MS)
    return machine


def grows(act: Callable[[Machine], object]) -> float:
    """Lines with a large backlog over lines with a small one."""
    small, large = full(SMALL), full(LARGE)
    return lines_of(lambda: act(large)) / lines_of(lambda: act(small))


def test_taking_a_change_costs_the_same_however_many_wait() -> None:
    assert grows(lambda machine: machine.enqueue([ref(10**6)], START_MS)) < 1.2


def test_replacing_a_change_costs_the_same_however_many_wait() -> None:
    newer = ChangeRef(10**6, PriorityClass.LWW, "unit", "u51", "e", START_MS)
    assert grows(lambda machine: machine.enqueue([newer], START_MS)) < 1.2


def test_ending_a_send_and_deciding_on_the_next_costs_the_same_however_many_wait() -> None:
    def turn(machine: Machine) -> None:
        for _ in range(20):
            number, ids = next(iter(machine.in_flight.sends.items()))
            fates = [ChangeResult(change_id, Outcome.APPLIED.value, change_id) for change_id in ids]
            machine.send_ended(number, SendEnded(fates, service_ms=400.0), START_MS)
            machine.decide(START_MS)

    assert grows(turn) < 1.2


def test_asking_when_to_wake_costs_the_same_however_many_wait() -> None:
    assert grows(Machine.wake_at_ms) < 1.2


def test_a_key_falls_due_at_the_same_cost_however_many_wait() -> None:
    def fall_due(machine: Machine) -> None:
        one = ChangeRef(10**6, PriorityClass.LWW, "unit", "early", "e", START_MS - 110_000)
        machine.enqueue([one], START_MS)
        machine.decide(START_MS + 11_000)

    assert grows(fall_due) < 1.2


# ---------------------------------------------------------------------------------- a backlog of any shape, all at once

LATER_MS = START_MS + 700_000


def of_one_entity(cls: PriorityClass, size: int) -> Machine:
    machine = full(0)
    machine.enqueue((ChangeRef(number, cls, "unit", "u", "e", START_MS) for number in range(1, size + 1)), START_MS)
    return machine


@pytest.mark.slow
def test_keys_that_fall_due_at_the_same_time_move_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "MOVED_AT_ONCE_MAX", SMALL // 2)
    assert grows(lambda machine: machine.coalescer.fall_due(LATER_MS, SMALL // 2)) < 1.2
    machine = full(LARGE)
    passes = 0
    while machine.coalescer.debounced_count:
        machine.decide(LATER_MS)
        passes += 1
    assert passes == 2 * LARGE // SMALL


def test_the_writer_wakes_at_once_while_more_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "MOVED_AT_ONCE_MAX", SMALL // 2)
    machine = full(SMALL)
    machine.coalescer.fall_due(LATER_MS, SMALL // 2)
    wake_at_ms = machine.wake_at_ms()
    assert wake_at_ms is not None
    assert wake_at_ms <= LATER_MS


@pytest.mark.slow
def test_flushing_all_costs_a_line_or_two_a_key_and_moves_few_at_a_time() -> None:
    machine = full(LARGE)
    assert lines_of(lambda: machine.coalescer.flush(None, START_MS)) < 3 * LARGE
    machine.decide(START_MS)
    assert machine.coalescer.debounced_count == LARGE - MOVED_AT_ONCE_MAX


@pytest.mark.parametrize("cls", PriorityClass)
def test_taking_a_snapshot_over_costs_the_same_for_each_change_however_many_there_are(cls: PriorityClass) -> None:
    def a_change(size: int) -> float:
        carried = snapshot.dump(of_one_entity(cls, size) if cls is not PriorityClass.LWW else full(size))
        return lines_of(lambda: snapshot.load(carried, WriterPolicy(), START_MS)) / size

    assert a_change(LARGE) < 1.2 * a_change(SMALL * 10)


def test_more_changes_than_a_run_can_take_over_at_once_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = full(SMALL)
    waiting = len(machine.coalescer.waiting)
    monkeypatch.setattr(snapshot, "CARRIED_MAX", waiting)
    assert snapshot.dump(machine)["waiting"] is not None
    monkeypatch.setattr(snapshot, "CARRIED_MAX", waiting - 1)
    assert snapshot.dump(machine)["waiting"] is None


def test_more_dead_letters_than_a_run_can_take_over_at_once_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = full(0)
    for number in range(SMALL):
        machine.outcomes.hold(EntityKey("unit", f"u{number}"), [number])
    monkeypatch.setattr(snapshot, "CARRIED_MAX", SMALL - 1)
    dumped = snapshot.dump(machine)
    assert (dumped["waiting"], dumped["holds"]) == (None, [])


@pytest.mark.slow
def test_what_is_flushed_and_has_not_moved_yet_is_carried_as_ready() -> None:
    machine = full(LARGE // 2)
    machine.coalescer.flush(None, START_MS + 5)
    carried = snapshot.load(snapshot.dump(machine), WriterPolicy(), START_MS + 5)
    assert carried.coalescer.debounced_count == 0
    assert len(carried.coalescer.lanes[PriorityClass.LWW]) == LARGE // 2


def keys_of_one_entity(size: int) -> Iterator[ChangeRef]:
    return (ChangeRef(number, PriorityClass.LWW, "unit", "u", f"e{number}", START_MS) for number in range(1, size + 1))


def test_an_emergency_behind_thousands_of_keys_of_its_entity_goes_in_batches_of_the_usual_size() -> None:
    machine = full(0)
    machine.enqueue(keys_of_one_entity(LARGE), START_MS)
    machine.enqueue([ChangeRef(LARGE + 1, PriorityClass.EMERGENCY, "unit", "u", "e", START_MS)], START_MS)
    sent = [action.change_ids for action in machine.decide(START_MS) if isinstance(action, Send)]
    assert sent == [tuple(range(first, first + SEND_OPERATIONS_MAX)) for first in (1, 1 + SEND_OPERATIONS_MAX)]


def test_a_rejection_costs_the_same_however_many_keys_its_entity_has() -> None:
    def rejected(size: int) -> int:
        machine = full(0)
        machine.enqueue(keys_of_one_entity(size), START_MS)
        return lines_of(lambda: machine.outcomes.hold(EntityKey("unit", "u"), [1]))

    assert rejected(LARGE) == rejected(SMALL)


def test_a_fate_of_a_change_that_is_not_known_costs_the_same_however_many_dead_letters_there_are() -> None:
    def settled(dead: int) -> int:
        machine = full(0)
        for number in range(dead):
            machine.outcomes.hold(EntityKey("unit", f"u{number}"), [number])
        return lines_of(lambda: machine.coalescer.take_change(10**6))

    assert settled(LARGE) == settled(SMALL)


@pytest.mark.parametrize("cls", PriorityClass)
def test_a_sweep_costs_the_same_for_each_change_however_many_dead_letters_its_entity_has(cls: PriorityClass) -> None:
    """The first page ends the holds that MariaDB does not have: some forty lines for each."""

    def swept(dead: int) -> int:
        machine = full(0)
        machine.outcomes.hold(EntityKey("unit", "u"), range(1, dead + 1))
        refs = [ChangeRef(LARGE + 1 + number, cls, "unit", "u", f"e{number}", START_MS) for number in range(SMALL)]
        return lines_of(lambda: machine.swept(refs, 0, False, START_MS))

    assert swept(LARGE) - swept(SMALL) <= (40 * LARGE if cls is PriorityClass.TXN else 0)


def test_a_forecast_of_what_came_over_weeks_walks_as_many_cells_as_of_what_came_over_days() -> None:
    ages = Ages()
    instants = [START_MS + minute * 60_000 for minute in range(3 * CELLS_MAX)]
    ref = ChangeRef(1, PriorityClass.LWW, "unit", "u", "e", START_MS)
    waiting = [PendingOperation(ref, at_ms, at_ms) for at_ms in instants]
    for entry in waiting:
        ages.add(entry)
    assert sum(1 for _ in ages.in_order()) <= CELLS_MAX
    assert sum(count for _, _, count in ages.in_order()) == len(instants)
    filled = Ages()
    filled.fill([(at_ms, at_ms) for at_ms in instants])
    assert list(filled.in_order()) == list(ages.in_order())
    for entry in waiting:
        ages.remove(entry)
    assert (ages.total, list(ages.in_order()), ages.cell_ms) == (0, [], CELL_MS)


@pytest.mark.parametrize("cls", [PriorityClass.EMERGENCY, PriorityClass.TXN])
def test_what_is_told_of_one_entity_is_bounded(cls: PriorityClass) -> None:
    machine = of_one_entity(cls, LARGE)
    found = status_report.find(machine, EntityKey("unit", "u"), START_MS)
    assert [one["change_id"] for one in found["changes"]] == list(range(1, status_report.FOUND_MAX + 1))
    assert found["count"] == LARGE
