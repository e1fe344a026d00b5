"""A writer that drains before a new run: what it does not begin any more does not wake it either."""

from __future__ import annotations

from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.machine.session import Phase
from oldhost_sync.policy.tuning import WriterPolicy
from tests.unit.policy.play import START_MS


def waiting_machine() -> Machine:
    """Loaded, nothing to send, and the time of its next session and of its next sweep has come."""
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    machine.session.phase, machine.session.until_ms = Phase.PAUSING, START_MS
    machine.sweeping.at_ms = START_MS
    return machine


def test_a_time_that_has_come_wakes_the_writer() -> None:
    assert waiting_machine().wake_at_ms() == START_MS


def test_a_time_that_has_come_does_not_wake_a_draining_writer() -> None:
    """It was woken each millisecond until the drain was over, which filled the history that was to be ended."""
    machine = waiting_machine()
    machine.draining = True
    wake_at_ms = machine.wake_at_ms()
    assert wake_at_ms is None or wake_at_ms > START_MS
