"""How far MariaDB's clock is ahead of this process's. Ages and due times are by MariaDB's, logs by ours."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import Gauge

logger = logging.getLogger(__name__)

# A time service keeps clocks within milliseconds; the promise for emergencies is 30 s.
TOLD_SECONDS = 30.0
# The end is told at a smaller difference, so that one that drifts around the limit is not told again and again.
OVER_SECONDS = 15.0


@dataclass(eq=False)
class ClockDifference:
    """`shown`: the metric, in seconds; negative while MariaDB's clock is behind."""

    shown: Gauge
    wall: Callable[[], float] = time.time
    _is_told: bool = False

    def saw(self, database_s: float, took_s: float) -> None:
        """MariaDB's clock showed `database_s`, in seconds since 1970, at some time in the last `took_s` seconds."""
        now = self.wall()
        ahead_s = database_s - min(max(database_s, now - took_s), now)
        self.shown.set(ahead_s)
        if not self._is_told and abs(ahead_s) > TOLD_SECONDS:
            self._is_told = True
            way = "ahead of" if ahead_s > 0 else "behind"
            logger.warning(
                "MariaDB's clock is %.0f s %s this machine's: correct the one that is wrong", abs(ahead_s), way
            )
        elif self._is_told and abs(ahead_s) < OVER_SECONDS:
            self._is_told = False
            logger.warning("MariaDB's clock and this machine's agree again")
