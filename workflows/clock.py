"""The writer's clock: the workflow's own time, the same in every replay.

It is the server's clock. If that is set back by hours, a run's time stands still for hours. A timer that has fired
proves that its time has come, so the writer's clock is never behind the latest one that fired.
"""

from __future__ import annotations

import time

from temporalio import workflow


class Clock:
    """The clock of one run. `proven_ms`: the latest due time of a timer that has fired."""

    def __init__(self) -> None:
        self.proven_ms = 0

    def fired(self, at_ms: int) -> None:
        self.proven_ms = max(self.proven_ms, at_ms)


def now_ms() -> int:
    """Unix milliseconds; they advance only between workflow tasks."""
    told_ms = workflow.time_ns() // 1_000_000
    clock: Clock | None = getattr(workflow.instance(), "clock", None)
    return told_ms if clock is None else max(told_ms, clock.proven_ms)


def present_ms() -> int:
    """The real time, for queries only. The writer's own time stands still while nothing happens, as during a ban."""
    return max(now_ms(), time.time_ns() // 1_000_000)
