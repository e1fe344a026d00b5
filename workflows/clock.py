"""The writer's clock and timers: the workflow's own time, the same in every replay.

It is the server's clock. If that is set back by hours, a run's time stands still for hours. A timer that has fired
proves that its time has come, so the writer's clock is never behind the latest one that fired.

Temporal fires a timer by its own clock, at the time that was due when it was begun: if that clock is set back by an
hour, each running timer is an hour late. The run can't see it; so the relay nudges it at intervals while changes wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from temporalio import workflow


class Clock:
    """The clock of one run. `proven_ms`: the latest due time of a timer that has fired."""

    def __init__(self) -> None:
        self.proven_ms = 0

    def fired(self, at_ms: int) -> None:
        self.proven_ms = max(self.proven_ms, at_ms)


def now_ms() -> int:
    """Unix milliseconds; they advance only between workflow tasks."""
    server_ms = workflow.time_ns() // 1_000_000
    clock: Clock | None = getattr(workflow.instance(), "clock", None)
    return server_ms if clock is None else max(server_ms, clock.proven_ms)


def present_ms() -> int:
    """The real time, for queries only. The writer's own time stands still while nothing happens, as during a ban."""
    return max(now_ms(), time.time_ns() // 1_000_000)


class Timers:
    """The timers of one run; `fired` is called after each. Each costs history, so one is begun only if no running one
    is early enough. One that fires for nothing costs less than cancelling it.
    """

    def __init__(self, fired: Callable[[], None]) -> None:
        self._fired = fired
        self._running: dict[int, asyncio.Task[None]] = {}  # by when they fire

    def ensure(self, at_ms: int, clock: Clock) -> None:
        """Begin one that fires at `at_ms`, unless a running one fires by then. `clock` learns when it fires."""
        if all(running_ms > at_ms for running_ms in self._running):
            self._running[at_ms] = asyncio.create_task(self._fire_at(at_ms, clock, self._running))

    def distrust(self) -> None:
        """Rely no more on those that run: they may fire much later than they were begun for."""
        self._running = {}

    async def _fire_at(self, at_ms: int, clock: Clock, running: dict[int, asyncio.Task[None]]) -> None:
        fires_at_ms = max(at_ms, now_ms() + 1)
        await workflow.sleep((fires_at_ms - now_ms()) / 1000, summary="until something is due")
        del running[at_ms]
        clock.fired(fires_at_ms)
        self._fired()
