"""Requests without a known token are answered at a limited rate for each address; faster requests wait.

Cheap answers are no protection: 150 connections that ask again at once keep the event loop busy, however little each
request costs, and writes are delayed. A waiting request costs nothing, and the wait is short, so each connection asks
once in that time. No request is refused: a flood does not affect probes from other addresses; a probe from the same
address is answered late, also for a moment after the flood has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from oldhost_sync.api import limits


class AnonymousRateLimit:
    """`clock`: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # For each address, when its requests so far would all be answered at STRANGERS_PER_SECOND.
        self._busy_until: dict[str, float] = {}

    async def turn(self, address: str) -> None:
        """Returns when this request may be answered."""
        wait = self.wait_of(address)
        if wait > 0:
            await asyncio.sleep(wait)

    def wait_of(self, address: str) -> float:
        """Reserve the next place of `address`; returns the seconds to wait for it."""
        now = self._clock()
        if len(self._busy_until) >= limits.STRANGERS_KEPT:
            self._busy_until = {each: until for each, until in self._busy_until.items() if until > now}
        ahead = limits.STRANGERS_AT_ONCE / limits.STRANGERS_PER_SECOND
        until = max(now, self._busy_until.get(address, now)) + 1 / limits.STRANGERS_PER_SECOND
        self._busy_until[address] = until = min(until, now + ahead + limits.STRANGER_WAIT_SECONDS_MAX)
        return until - now - ahead
