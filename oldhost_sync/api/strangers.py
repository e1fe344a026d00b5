"""Requests without a known token are answered at a pace, address by address; those that come faster wait.

A cheap answer is no protection: 150 connections that ask again as soon as they are answered keep the event loop busy,
whatever each costs, and writers wait. Who waits costs nothing, and nobody waits long: then each connection asks once in
that time. Nobody is refused: a probe beside a storm from another address sees none of it, one from the same address is
answered late, also when the storm has gone and left its requests behind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from oldhost_sync.api import limits


class StrangerPace:
    """`clock`: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # When all that was asked so far from an address would be answered, one after the other.
        self._busy_until: dict[str, float] = {}

    async def turn(self, address: str) -> None:
        """Return when it is this request's turn."""
        wait = self.wait_of(address)
        if wait > 0:
            await asyncio.sleep(wait)

    def wait_of(self, address: str) -> float:
        """Take the next turn of `address`; the seconds until it comes."""
        now = self._clock()
        if len(self._busy_until) >= limits.STRANGERS_KEPT:
            self._busy_until = {each: until for each, until in self._busy_until.items() if until > now}
        ahead = limits.STRANGERS_AT_ONCE / limits.STRANGERS_PER_SECOND
        until = max(now, self._busy_until.get(address, now)) + 1 / limits.STRANGERS_PER_SECOND
        self._busy_until[address] = until = min(until, now + ahead + limits.STRANGER_WAIT_SECONDS_MAX)
        return until - now - ahead
