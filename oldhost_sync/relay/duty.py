"""A duty in a loop of its own: round after round, through every outage, which is logged once.

A failing duty stops no other. It waits for a database or server that is away. An unexpected error is logged with its
traceback. If it ended the round, the pause before the next one grows; if it was one host's, the others keep their pace.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy.exc import DBAPIError

from oldhost_sync.relay.host_failures import HostsFailed
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
    """Runs one duty. `outage_known`: whether the database's outage has already been logged. `failed_rounds`: in a row,
    by host.
    """

    duty: Duty
    monotonic: Callable[[], float]
    metrics: RelayMetrics | None = None
    outage_known: Callable[[], bool] = lambda: False
    failed_rounds: dict[str, int] = field(default_factory=dict)

    async def run(self, stop: asyncio.Event) -> None:
        await repeat(stop, self.guarded_round)

    async def guarded_round(self) -> float:
        """One round, and the pause after it."""
        try:
            pause = await self.duty.run_once(self.monotonic())
        except HostsFailed as error:
            self._note(error.by_host)
            return self.duty.pause_s
        except Exception as error:  # noqa: BLE001 - it is logged, and the duty goes on
            self._note({self.duty.host: error})
            if _is_foreseen(error):
                return self.duty.pause_s
            rounds = self.failed_rounds.get(self.duty.host, 0)
            return min(self.duty.pause_s * 2.0 ** min(rounds, 10), PAUSE_SECONDS_MAX)
        self._note({})
        return pause

    def _note(self, failed: Mapping[str, Exception]) -> None:
        """Count and log what failed in this round, and what works again."""
        for host, error in failed.items():
            if host not in self.failed_rounds and not _is_foreseen(error):
                logger.error("relay of %s: %s failed unexpectedly", host, self.duty.name, exc_info=error)
        if failed and self.outage_known():
            self.failed_rounds = {}
            return
        for host, rounds in self.failed_rounds.items():
            if host not in failed and rounds >= FAILED_ROUNDS_BEFORE_LOG:
                logger.info("relay of %s: %s works again", host, self.duty.name)
        self.failed_rounds = {host: self.failed_rounds.get(host, 0) + 1 for host in failed}
        for host, error in failed.items():
            if self.metrics:
                self.metrics.failures.labels(host, self.duty.name).inc()
            if self.failed_rounds[host] == FAILED_ROUNDS_BEFORE_LOG:
                logger.warning("relay of %s: %s fails: %s", host, self.duty.name, error)


def _is_foreseen(error: Exception) -> bool:
    return isinstance(error, StoreError | DBAPIError)
