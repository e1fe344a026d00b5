"""Nothing here waits without end: a timeout that is fair to the server that was asked, a queue with a limit, and a
circuit breaker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from oldhost_sync.api.problems import Problem, too_busy

SLICE_SECONDS = 0.25


async def is_silent(future: asyncio.Future[Any], seconds: float) -> bool:
    """Whether the future has no result after `seconds`; a standstill here counts as at most SLICE_SECONDS.

    When a process stands still (no CPU, a frozen machine, a long garbage collection) and continues, its timeouts have
    passed and answers that arrived are still unread. That is not the fault of the server that was asked.
    """
    left = seconds
    while left > 0 and not future.done():
        part = min(left, SLICE_SECONDS)
        await asyncio.wait({future}, timeout=part)
        left -= part
    return not future.done()


class Places(asyncio.Semaphore):
    """A semaphore with a bounded queue and a bounded wait; the rest is refused at once. `count` at a time, and at most
    `queue_max` that wait; `refusal`: the answer where there is no room.
    """

    def __init__(self, count: int, queue_max: int, refusal: Callable[[], Problem] = too_busy) -> None:
        super().__init__(count)
        self._queue_max = queue_max
        self._refusal = refusal
        self.waiting = 0

    async def take(self, seconds_max: float) -> None:
        """Raises a Problem if the queue is full, TimeoutError after `seconds_max`."""
        if not self.locked():
            await self.acquire()
            return
        if self.waiting >= self._queue_max:
            raise self._refusal()
        self.waiting += 1
        try:
            async with asyncio.timeout(seconds_max):
                await self.acquire()
        finally:
            self.waiting -= 1

    @asynccontextmanager
    async def turn(self, seconds_max: float) -> AsyncIterator[None]:
        """A place for the `async with` block. Raises a Problem if the queue is full, or after `seconds_max`."""
        try:
            await self.take(seconds_max)
        except TimeoutError:
            raise self._refusal() from None
        try:
            yield
        finally:
            self.release()


class Circuit:
    """Whether a server is known away: then requests fail at once instead of each waiting for it, and one probe per
    interval is let through. `now`: monotonic seconds.
    """

    def __init__(self, probe_seconds: float) -> None:
        self._probe_seconds = probe_seconds
        self._next_probe: float | None = None
        self._problem: Callable[[], Problem] | None = None

    @property
    def is_open(self) -> bool:
        return self._next_probe is not None

    def admits(self, now: float) -> bool:
        """Whether this request may try. While the circuit is open, only the first request after each interval may."""
        if self._next_probe is None:
            return True
        if now < self._next_probe:
            return False
        self._next_probe = now + self._probe_seconds
        return True

    def failed(self, now: float, problem: Callable[[], Problem]) -> None:
        """`problem`: makes the answer to each request that may not try."""
        self._next_probe = now + self._probe_seconds
        self._problem = problem

    def succeeded(self) -> None:
        self._next_probe = None

    def problem(self) -> Problem:
        """The answer to a request that may not try: what the last one that tried was told."""
        assert self._problem is not None, "only a circuit that has failed refuses"
        return self._problem()
