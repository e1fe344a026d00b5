"""Work per event does not grow with the backlog: lines of Python executed, counted, never timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from oldhost_sync.policy import deciding
from oldhost_sync.policy.changes import ChangeRef, Fate, Outcome, PriorityClass
from oldhost_sync.policy.machine import Machine
from oldhost_sync.policy.writer_policy import WriterPolicy
from tests.unit.policy.play import START_MS

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
    return ChangeRef(number, cls, "unit", f"u{number}", "e", START_MS)


def full(size: int) -> Machine:
    """`size` of each class waiting, a session open, two in flight."""
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    deciding.decide(machine, START_MS)
    machine.opened(1, "queue", 1, [], [], more_bound=False, now_ms=START_MS)
    for offset, cls in enumerate(PriorityClass):
        machine.enqueue((ref(1 + 3 * number + offset, cls) for number in range(size)), START_MS)
    deciding.decide(machine, START_MS)
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
            batch, ids = next(iter(machine.in_flight.batches.items()))
            fates = [Fate(change_id, Outcome.APPLIED.value, change_id) for change_id in ids]
            machine.reported(batch, fates, session_open=True, service_ms=400.0, banned_ms=0, now_ms=START_MS)
            deciding.decide(machine, START_MS)

    assert grows(turn) < 1.2


def test_asking_when_to_wake_costs_the_same_however_many_wait() -> None:
    assert grows(deciding.wake_at_ms) < 1.2


def test_a_key_falls_due_at_the_same_cost_however_many_wait() -> None:
    def fall_due(machine: Machine) -> None:
        one = ChangeRef(10**6, PriorityClass.LWW, "unit", "early", "e", START_MS - 110_000)
        machine.enqueue([one], START_MS)
        deciding.decide(machine, START_MS + 11_000)

    assert grows(fall_due) < 1.2
