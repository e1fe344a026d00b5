"""How fast one client may go: what a token reads, requests without a token, and lines in the log about refused
sign-ins.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from oldhost_sync.api import http_limits
from oldhost_sync.api.problems import Problem

logger = logging.getLogger("oldhost_sync.api")

WINDOW_SECONDS = 60.0
# Addresses logged per minute; further ones appear only in the last line's count.
SOURCES_MAX = 20


class ReadingPace:
    """What one token reads has a pace, counted in bytes. `clock`: seconds, monotonic.

    A page of 500 changes takes 30 ms of the event loop, thirty times as much as one unit, and meanwhile no write is
    answered. So a request reserves the most that its path has cost so far, and waits until that fits; what it cost less
    is given back. Clients in a loop read at this pace, however many they are; people and normal programs never wait.
    """

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
        is_refused = wait > http_limits.READ_WAIT_SECONDS_MAX
        if is_refused:
            self._count(token, -reserved)
        if wait > 0:
            await asyncio.sleep(min(wait, http_limits.READ_WAIT_SECONDS_MAX))
        if is_refused:
            raise too_much_read(wait - http_limits.READ_WAIT_SECONDS_MAX)
        return reserved

    def reserve(self, token: str, path: str) -> tuple[float, int]:
        """Returns the seconds to wait, and the bytes that are reserved."""
        now, reserved = self._clock(), http_limits.READ_BYTES_EACH + self._costs.get(path, 0)
        begin = max(now, self._busy_until.get(token, now))
        self._busy_until[token] = begin
        self._count(token, reserved)
        return begin - now - http_limits.READ_AHEAD_SECONDS, reserved

    def answered(self, token: str, path: str, reserved: int, size: int) -> None:
        """The answer had `size` bytes."""
        self._count(token, http_limits.READ_BYTES_EACH + size - reserved)
        self._costs[path] = max(size, self._costs.pop(path, 0))
        if len(self._costs) > http_limits.READ_COSTS_KEPT:
            self._costs.popitem(last=False)

    def _count(self, token: str, size: int) -> None:
        self._busy_until[token] += size / http_limits.READ_BYTES_PER_SECOND


def too_much_read(wait: float) -> Problem:
    rate = http_limits.READ_BYTES_PER_SECOND // 1000
    detail = f"This token may read {rate} kB a second, and reads much more."
    action = "Ask again after Retry-After, and less often. To follow changes, use the feed with its cursor."
    headers = {"Retry-After": str(math.ceil(wait))}
    return Problem(429, "too-much-read", "The token reads too much", detail, action, headers)


class AnonymousRateLimit:
    """Requests without a known token are answered at a limited rate for each address; faster requests wait. `clock`:
    seconds, monotonic.

    Cheap answers are no protection: 150 connections that ask again at once keep the event loop busy, however little
    each request costs, and writes are delayed. A waiting request costs nothing, and the wait is short, so each
    connection asks once in that time. No request is refused: a flood does not affect probes from other addresses; a
    probe from the same address is answered late, also for a moment after the flood has ended.
    """

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
        if len(self._busy_until) >= http_limits.STRANGERS_KEPT:
            self._busy_until = {known: until for known, until in self._busy_until.items() if until > now}
        ahead = http_limits.STRANGERS_AT_ONCE / http_limits.STRANGERS_PER_SECOND
        until = max(now, self._busy_until.get(address, now)) + 1 / http_limits.STRANGERS_PER_SECOND
        self._busy_until[address] = until = min(until, now + ahead + http_limits.STRANGER_WAIT_SECONDS_MAX)
        return until - now - ahead


class RefusedSignIns:
    """Logs refused sign-ins: the address and the reason, never what was sent. `clock`: seconds, monotonic.

    A client can't flood the log: each address and reason is logged once per minute, the rest is counted, and only a few
    addresses are logged per minute.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._others = 0

    def note(self, address: str, why: str) -> None:
        """Log or count one refused sign-in."""
        self.report_due()
        source = (address, why)
        if source in self._counts:
            self._counts[source] += 1
        elif len(self._counts) < SOURCES_MAX:
            self._counts[source] = 1
            logger.warning("refused a sign-in from %s: %s", address, why)
        else:
            self._others += 1

    async def keep(self) -> None:
        """Log what was counted, until cancelled."""
        while True:
            await asyncio.sleep(WINDOW_SECONDS)
            self.report_due()

    def report_due(self) -> None:
        """Log once a minute how many more there were."""
        now = self._clock()
        if now - self._began < WINDOW_SECONDS:
            return
        for (address, why), count in self._counts.items():
            if count > 1:
                logger.warning("refused %d more sign-ins from %s within a minute: %s", count - 1, address, why)
        if self._others:
            logger.warning("refused %d more sign-ins from other addresses within a minute", self._others)
        self._began, self._others = now, 0
        self._counts.clear()
