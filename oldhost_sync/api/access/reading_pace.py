"""What one token reads has a pace, counted in bytes.

A page of 500 changes takes 30 ms of the event loop, thirty times as much as one unit, and meanwhile no write is
answered. So a request reserves the most that its path has cost so far, and waits until that fits; what it cost less is
given back. Clients in a loop read at this pace, however many they are; people and normal programs never wait.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from oldhost_sync.api import limits
from oldhost_sync.api.problems import Problem


class ReadingPace:
    """`clock`: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # For each token, when its reads so far would all be done at READ_BYTES_PER_SECOND.
        self._busy_until: dict[str, float] = {}
        self._costs: OrderedDict[str, int] = OrderedDict()

    async def turn(self, token: str, path: str) -> int:
        """Returns when `path` may be answered: the bytes that are reserved for it. Raises a Problem, 429, after a wait:
        a client that is refused at once asks again at once.
        """
        wait, reserved = self.reserve(token, path)
        is_refused = wait > limits.READ_WAIT_SECONDS_MAX
        if is_refused:
            self._count(token, -reserved)
        if wait > 0:
            await asyncio.sleep(min(wait, limits.READ_WAIT_SECONDS_MAX))
        if is_refused:
            raise too_much_read(wait - limits.READ_WAIT_SECONDS_MAX)
        return reserved

    def reserve(self, token: str, path: str) -> tuple[float, int]:
        """Returns the seconds to wait, and the bytes that are reserved."""
        now, reserved = self._clock(), limits.READ_BYTES_EACH + self._costs.get(path, 0)
        begin = max(now, self._busy_until.get(token, now))
        self._busy_until[token] = begin
        self._count(token, reserved)
        return begin - now - limits.READ_AHEAD_SECONDS, reserved

    def answered(self, token: str, path: str, reserved: int, size: int) -> None:
        """The answer had `size` bytes."""
        self._count(token, limits.READ_BYTES_EACH + size - reserved)
        self._costs[path] = max(size, self._costs.pop(path, 0))
        if len(self._costs) > limits.READ_COSTS_KEPT:
            self._costs.popitem(last=False)

    def _count(self, token: str, size: int) -> None:
        self._busy_until[token] += size / limits.READ_BYTES_PER_SECOND


def too_much_read(wait: float) -> Problem:
    rate = limits.READ_BYTES_PER_SECOND // 1000
    detail = f"This token may read {rate} kB a second, and reads much more."
    action = "Ask again after Retry-After, and less often. To follow changes, use the feed with its cursor."
    headers = {"Retry-After": str(math.ceil(wait))}
    return Problem(429, "too-much-read", "The token reads too much", detail, action, headers)
