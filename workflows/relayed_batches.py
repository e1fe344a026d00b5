"""Relayed: batches of refs that the relay has signalled; the machine takes a few at each pass.

While no worker runs, they queue up at Temporal, which delivers them in one task when a worker starts: 200 of them are
100,000 changes and some 2 s of work, which Temporal takes for a deadlock. It would retry the task for ever, with the
same result.
"""

from __future__ import annotations

from collections import deque

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy.machine import Machine
    from workflows import intake

# Of 500 refs each, some 6 ms.
BATCHES_AT_ONCE_MAX = 6


class Relayed:
    """`waiting`: batches that the machine has not taken yet, in order of arrival."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.waiting: deque[RawValue] = deque()
        self._nudged = False

    def add(self, batch: RawValue) -> None:
        self.waiting.append(batch)

    def take(self, now_ms: int) -> int:
        """Give some to the machine; returns the number of items that can't be read."""
        unreadable = 0
        for _ in range(min(BATCHES_AT_ONCE_MAX, len(self.waiting))):
            refs, no_refs = intake.read_refs(self.waiting.popleft())
            self._machine.enqueue(refs, now_ms)
            unreadable += no_refs
            self._nudged = self._nudged or not (refs or no_refs)
        return unreadable

    def take_nudge(self) -> bool:
        """Whether an empty batch has come since the last call: changes have waited all the time for minutes."""
        nudged, self._nudged = self._nudged, False
        return nudged
