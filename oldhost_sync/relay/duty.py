"""A duty in a loop of its own: round after round, through every outage, which is logged once.

A failing duty stops no other. It waits for a database or server that is away. An unexpected error ends the round and is
logged with its traceback; the pause before the next round grows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy.exc import DBAPIError

from oldhost_sync.store.errors import StoreError
from oldhost_sync.telemetry import RelayMetrics

logger = logging.getLogger(__name__)

# Rounds that fail before it is logged: a lock, or an outage that another loop is about to log, lasts fewer.
FAILED_ROUNDS_BEFORE_LOG = 3
PAUSE_SECONDS_MAX = 30.0


class Duty(Protocol):
    """`name`: what is not done while it fails; `host`: for which host (or "all hosts"); `pause_s`: the pause then."""

    name: str
    host: str
    pause_s: float

    async def run_once(self, now: float) -> float:
        """One round; returns the seconds until the next. `now` is monotonic."""


async def repeat(stop: asyncio.Event, step: Callable[[], Awaitable[float]]) -> None:
    """Call `step` until `stop` is set; it returns the pause before the next call."""
    while not stop.is_set():
        pause = await step()
        try:
            await asyncio.wait_for(stop.wait(), pause)
        except TimeoutError:
            continue


@dataclass(eq=False)
class DutyLoop:
    """Runs one duty. `outage_known`: whether the database's outage has already been logged."""

    duty: Duty
    monotonic: Callable[[], float]
    metrics: RelayMetrics | None = None
    outage_known: Callable[[], bool] = lambda: False
    failed_rounds: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        await repeat(stop, self.guarded_round)

    async def guarded_round(self) -> float:
        """One round, and the pause after it."""
        try:
            pause = await self.duty.run_once(self.monotonic())
        except (StoreError, DBAPIError) as error:
            self._failed(error)
            return self.duty.pause_s
        except Exception as error:
            if not self.failed_rounds:
                logger.exception("relay of %s: %s failed unexpectedly", self.duty.host, self.duty.name)
            self._failed(error)
            return min(self.duty.pause_s * 2.0 ** min(self.failed_rounds, 10), PAUSE_SECONDS_MAX)
        if self.failed_rounds >= FAILED_ROUNDS_BEFORE_LOG:
            logger.info("relay of %s: %s works again", self.duty.host, self.duty.name)
        self.failed_rounds = 0
        return pause

    def _failed(self, error: Exception) -> None:
        if self.outage_known():
            self.failed_rounds = 0
            return
        self.failed_rounds += 1
        if self.metrics:
            self.metrics.failures.labels(self.duty.host, self.duty.name).inc()
        if self.failed_rounds == FAILED_ROUNDS_BEFORE_LOG:
            logger.warning("relay of %s: %s fails: %s", self.duty.host, self.duty.name, error)
