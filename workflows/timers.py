"""Timers: those of a run. Each costs history (trap 18), so a new one is begun only if no running one is early enough.

One that fires for nothing costs less than cancelling it. Temporal fires a timer by its own clock, at the time that was
due when it was begun: if that clock is set back by an hour, each running timer is an hour late. The run can't see it,
since its time only stands still; so the relay nudges it at intervals while changes wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.clock import Clock, now_ms


class Timers:
    """`fired`: called after each."""

    def __init__(self, fired: Callable[[], None]) -> None:
        self._fired = fired
        self._running: dict[int, asyncio.Task[None]] = {}  # by when they fire

    def ensure(self, at_ms: int, clock: Clock) -> None:
        """Begin one that fires at `at_ms`, unless a running one fires by then. `clock` is told when it fires."""
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
