"""Sign-ins that were refused, in the log: from where and why, and never what was given.

Whoever tries does not decide how much is written: an address and a reason are told once in a minute with the count of
the rest, and a minute tells of a few addresses only.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

logger = logging.getLogger("oldhost_sync.api")

WINDOW_SECONDS = 60.0
# Lines for people to read; whoever has more addresses is seen in the last line's count.
SOURCES_MAX = 20


class RefusedSignIns:
    """`clock`: seconds, monotonic. `count`: is told of each, with the reason's kind."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._others = 0

    def note(self, address: str, why: str) -> None:
        """One was refused."""
        self.report_due()
        source = (address, why)
        if source in self._counts:
            self._counts[source] += 1
        elif len(self._counts) < SOURCES_MAX:
            self._counts[source] = 1
            logger.warning("refused a sign-in from %s: %s", address, why)
        else:
            self._others += 1

    def report_due(self) -> None:
        """Once a minute: how many more there were."""
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
