"""Log refused sign-ins: the address and the reason, never what was sent.

A client can't flood the log: each address and reason is logged once per minute, the rest is counted, and only a few
addresses are logged per minute.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable

logger = logging.getLogger("oldhost_sync.api")

WINDOW_SECONDS = 60.0
# Addresses logged per minute; further ones appear only in the last line's count.
SOURCES_MAX = 20


class RefusedSignIns:
    """`clock`: seconds, monotonic."""

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
