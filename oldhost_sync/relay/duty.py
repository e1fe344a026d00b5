"""A duty in a loop of its own: round after round, through every outage, which is logged once.

A failing duty stops no other. It waits for a database or server that is away. An unexpected error is logged with its
traceback. If it ended the round, the pause before the next one grows. What fails for one host of a round ends nothing
for the others: the round goes on, and tells of the failures at its end. But an outage of the database is no host's own:
it ends the round, since each further host would wait for it, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy import limits
from oldhost_sync.store.errors import DatabaseUnavailable, StatementRefused, StatementTooSlow, StoreError
from oldhost_sync.store.retention import RetentionDays
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


class HostsFailed(Exception):  # noqa: N818 - says what happened
    """A round was done for all hosts but these; `by_host` has the first error of each."""

    def __init__(self, by_host: Mapping[str, Exception]) -> None:
        super().__init__("; ".join(f"{host}: {error}" for host, error in by_host.items()))
        self.by_host = dict(by_host)


class HostFailures:
    """`with HostFailures() as failures:` is a round, `with failures.of(host):` one host's part of it. At its end the
    round raises HostsFailed if a part failed. An outage is raised at once, as it is.
    """

    def __init__(self) -> None:
        self._by_host: dict[str, Exception] = {}

    @contextmanager
    def of(self, host: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if is_outage(error):
                raise
            self._by_host.setdefault(host, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._by_host:
            raise HostsFailed(self._by_host)


def is_outage(error: Exception) -> bool:
    """Whether MariaDB is away, for all hosts; a statement that took too long, or was refused, is one host's own."""
    return isinstance(error, DatabaseUnavailable) and not isinstance(error, StatementTooSlow | StatementRefused)


@dataclass(frozen=True, slots=True)
class RelayPace:
    """How often and how much the relay's duties work; policy/limits.py has the reason for each number."""

    batch_refs: int = limits.RELAY_BATCH_REFS_MAX
    signal_interval_s: float = limits.RELAY_SIGNAL_INTERVAL_SECONDS
    calm_interval_s: float = limits.RELAY_CALM_INTERVAL_SECONDS
    backlog_interval_s: float = limits.RELAY_BACKLOG_INTERVAL_SECONDS
    poll_s: float = limits.RELAY_POLL_SECONDS
    wait_s: float = limits.RELAY_WAIT_SECONDS
    schedule_interval_s: float = limits.RELAY_SCHEDULE_INTERVAL_SECONDS
    schedule_batch: int = limits.RELAY_SCHEDULE_BATCH_MAX
    unprocessed_max: int = limits.RELAY_UNPROCESSED_MAX
    count_interval_s: float = limits.RELAY_COUNT_INTERVAL_SECONDS
    lease_s: float = limits.RELAY_LEASE_SECONDS
    offer_interval_s: float = limits.RELAY_OFFER_SECONDS
    pause_s: float = limits.RELAY_PAUSE_SECONDS
    pause_max_s: float = limits.RELAY_PAUSE_SECONDS_MAX
    retention: RetentionDays = field(default_factory=RetentionDays)
    retention_rows: int = limits.RETENTION_BATCH_ROWS
    retention_interval_s: float = limits.RETENTION_INTERVAL_SECONDS
    settlement_interval_s: float = limits.SETTLEMENT_INTERVAL_SECONDS

    def within(self, debounce_s: float) -> RelayPace:
        """The same, with no signal's interval longer than a thirtieth of the debounce (but at least `poll_s`)."""
        most = max(self.poll_s, debounce_s / limits.RELAY_DEBOUNCE_PER_SIGNAL)
        return replace(
            self,
            signal_interval_s=min(self.signal_interval_s, most),
            calm_interval_s=min(self.calm_interval_s, most),
            backlog_interval_s=min(self.backlog_interval_s, most),
        )
