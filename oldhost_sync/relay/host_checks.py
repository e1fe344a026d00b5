"""Checks of all hosts that this process relays for, which may wait for a lock or count all rows; so they are apart from
the figures (`host_watch`), which wait for nothing.

Alerts about dead letters follow the figures, one tells of a worker that is far from MariaDB, alerts whose cause did not
recur are closed, and the books, for which all rows are counted, are checked every few minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlalchemy.exc import DBAPIError

from oldhost_sync.relay.host_failures import HostFailures, is_outage
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.alert_decisions import close_quiet_alerts
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.dead_letter_alerts import keep_dead_letter_alerts
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.outbox.books import check_books
from oldhost_sync.store.read.figures import HostFigures
from oldhost_sync.store.read.sessions import far_worker, read_workers

logger = logging.getLogger(__name__)

# Without a statement while nothing is due.
DUE_SECONDS = 3.0
BOOKS_SECONDS = 300.0
# The further pause after a check of the books, as a multiple of its duration: it takes at most 1 % of the time.
BOOKS_PAUSE = 100
QUIET_SECONDS = 3600.0
# Longer than it takes a worker to report itself again. A distance counts when two looks in a row found it.
DISTANCE_SECONDS = 15.0
FAR = "database-far"


@dataclass(slots=True)
class _Host:
    # Identifies the dead letters that the alerts cover; None: not known, as after a takeover.
    dead_letters: tuple[int, int] | None = None
    imbalance: int | None = None
    books_at: float = float("-inf")
    quiet_at: float = float("-inf")
    distance_at: float = float("-inf")
    # Whether a worker was far at the last look; None: there was none, and an alert may be open.
    was_far: bool | None = None


@dataclass(eq=False)
class HostChecks:
    """A duty (see `duty`) for all hosts of `leaderships`. `figures`: the last of each host."""

    name = "checking dead letters, distances, quiet alerts and the books"
    host = "all hosts"
    pause_s = DUE_SECONDS

    transactions: Transactions
    leaderships: Mapping[str, Leadership]
    figures: Mapping[str, HostFigures] = field(default_factory=dict)
    monotonic: Callable[[], float] = time.monotonic
    _hosts: dict[str, _Host] = field(default_factory=dict)

    def imbalance(self, host: str) -> int | None:
        """By how many changes the host's books did not balance; None if the last check failed, or there was none."""
        return self._hosts.get(host, _Host()).imbalance

    async def run_once(self, now: float) -> float:
        """What is due, of every host that this process is active for. A conflict is not retried: soon it is due again,
        and the other hosts would wait.
        """
        active = [host for host, leadership in self.leaderships.items() if leadership.held(now)]
        self._hosts = {host: self._hosts.get(host) or _Host() for host in active}
        with HostFailures() as failures:
            for check in (
                self._follow_dead_letters,
                self._tell_of_distance,
                self._close_quiet_alerts,
                self._check_books,
            ):
                for host in active:
                    with failures.of(host):
                        await check(host, self._hosts[host], now)
        return DUE_SECONDS

    async def _follow_dead_letters(self, name: str, host: _Host, _now: float) -> None:
        if name in self.figures and self.figures[name].dead_letters_id != host.dead_letters:
            found = self.figures[name].dead_letters_id
            await self.transactions.run(lambda connection: keep_dead_letter_alerts(connection, name), attempts=1)
            host.dead_letters = found

    async def _tell_of_distance(self, name: str, host: _Host, now: float) -> None:
        if now < host.distance_at + DISTANCE_SECONDS:
            return
        host.distance_at = now
        workers = await self.transactions.run(lambda connection: read_workers(connection, name), attempts=1)
        far, before = far_worker(workers, was_far=bool(host.was_far)), host.was_far
        if far is not None and before:
            await self.transactions.run(
                lambda connection: raise_alert(connection, name, FAR, far.severity, far.message), attempts=1
            )
        elif far is None and before is not False:
            await self.transactions.run(lambda connection: close_alert(connection, name, FAR), attempts=1)
        host.was_far = far is not None

    async def _close_quiet_alerts(self, name: str, host: _Host, now: float) -> None:
        if now >= host.quiet_at + QUIET_SECONDS:
            await self.transactions.run(lambda connection: close_quiet_alerts(connection, name), attempts=1)
            host.quiet_at = now

    async def _check_books(self, name: str, host: _Host, now: float) -> None:
        """One that fails is told of and waits for its next time, too: it may have counted for as long as it may."""
        if now < host.books_at + BOOKS_SECONDS:
            return
        began = self.monotonic()
        try:
            host.imbalance = await self.transactions.run(lambda connection: check_books(connection, name), attempts=1)
        except Exception as error:
            host.imbalance = None
            if is_outage(error) or not isinstance(error, StoreError | DBAPIError):
                raise
            logger.warning("the books of %s could not be checked: %s", name, error)
        finally:
            host.books_at = now + BOOKS_PAUSE * (self.monotonic() - began)
