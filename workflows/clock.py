"""The writer's clock: the workflow's own time, the same in every replay.

It is the server's, and stands still for hours in a run when that is set back. A timer that has rung proves how late it
is, so the writer's clock goes on from there.
"""

from __future__ import annotations

import time

from temporalio import workflow


class Clock:
    """Of one run. `proven_ms`: when the latest timer was due that has rung."""

    def __init__(self) -> None:
        self.proven_ms = 0

    def rang(self, at_ms: int) -> None:
        self.proven_ms = max(self.proven_ms, at_ms)


def now_ms() -> int:
    """Epoch milliseconds; they move only between workflow tasks."""
    told_ms = workflow.time_ns() // 1_000_000
    clock: Clock | None = getattr(workflow.instance(), "clock", None)
    return told_ms if clock is None else max(told_ms, clock.proven_ms)


def present_ms() -> int:
    """For queries only: the time now. The writer's own stands still while nothing happens, as during a ban."""
    return max(now_ms(), time.time_ns() // 1_000_000)
