"""A semaphore with a bounded queue and a bounded wait: the rest is told so at once, instead of waiting without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from oldhost_sync.api.problems import Problem, too_busy


class Places(asyncio.Semaphore):
    """`count` at a time, and at most `queue_max` that wait; `refusal`: the answer where there is no room."""

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
