"""Watches all hosts that this process relays for: their figures for Prometheus, what must be checked, and their load.

Figures are read without a lock. Checks may wait for a lock or count all rows; so they are a duty apart.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy.forecast.rates import FateRates
from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.policy.rules.host_state import host_state
from oldhost_sync.policy.tuning import USUAL_PROMISES, Promises
from oldhost_sync.relay.duty import HostFailures, is_outage
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.alerts import close_quiet_alerts, keep_dead_letter_alerts
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.outbox.books import check_books
from oldhost_sync.store.read.figures import RINGS, HostFigures, read_figures, record_sample
from oldhost_sync.store.read.host_condition import read_other_mappings
from oldhost_sync.store.read.sessions import far_worker, read_workers
from oldhost_sync.telemetry import ExportedHost, HostMetrics

logger = logging.getLogger(__name__)

POLL_SECONDS = 10.0
# The pause after a poll, as a multiple of its duration: polls take at most 1 % of the time.
PAUSE_FOR_EACH_SECOND = 100
# Figures that are overdue for longer are shown no more: rules must not rely on them.
OVERDUE_SECONDS_MAX = 60.0
# Without a statement while nothing is due.
DUE_SECONDS = 3.0
BOOKS_SECONDS = 300.0
# The further pause after a check of the books, as a multiple of its duration: it takes at most 1 % of the time.
BOOKS_PAUSE = 100
QUIET_SECONDS = 3600.0
# Longer than it takes a worker to report itself again.
DISTANCE_SECONDS = 15.0
FAR = "database-far"
MAPPING_SECONDS = 60.0
MAPPING = "mapping-changed"
SAMPLE_SECONDS = float(RINGS["1h"].step_s)


@dataclass(eq=False)
class HostWatch:
    """Shows the hosts' figures (a duty, see `duty`): every ten seconds, or less often if polls would take more than a
    small share of the time. `owner` names this process in the leases. `troubles`: by "writer HOST", what is wrong with
    each writer (see `watchdog`). `fate_rates`: what `PromiseWatch` saw. `checks` get the figures.
    """

    name = "looking at the hosts' figures"
    host = "all hosts"
    pause_s = POLL_SECONDS

    transactions: Transactions
    leaderships: Mapping[str, Leadership]
    owner: str
    metrics: HostMetrics
    troubles: Callable[[], Mapping[str, str]]
    fate_rates: Mapping[str, FateRates]
    checks: HostChecks
    promises: Callable[[str], Promises] = lambda _: USUAL_PROMISES
    monotonic: Callable[[], float] = time.monotonic
    _figures: Mapping[str, HostFigures] = field(default_factory=dict)

    async def run_once(self, now: float) -> float:
        """Look at every host that this process is active for."""
        active = [host for host, leadership in self.leaderships.items() if leadership.held(now)]
        before = {host: figures for host, figures in self._figures.items() if host in active}
        for host in self._figures.keys() - before.keys():
            self.metrics.forget(host)
        self._figures = before
        if not active:
            return POLL_SECONDS
        began = self.monotonic()
        read = await self.transactions.run(lambda connection: read_figures(connection, self.owner))
        pause = max(POLL_SECONDS, PAUSE_FOR_EACH_SECOND * (self.monotonic() - began))
        self._figures = self.checks.figures = {host: read[host] for host in active if host in read}
        for host, figures in self._figures.items():
            shown = self._exported(host, figures, before.get(host), now)
            self.metrics.show(host, shown, until=now + pause + OVERDUE_SECONDS_MAX)
        return pause

    def _exported(self, host: str, figures: HostFigures, before: HostFigures | None, now: float) -> ExportedHost:
        state = host_state(
            halted=figures.halted,
            paused=figures.paused_s is not None,
            banned=figures.ban_left_s > 0,
            writer_runs=not self.troubles().get(f"writer {host}", ""),
            fates_came=before is not None and figures.fates > before.fates,
        )
        rates = self.fate_rates.get(host) or FateRates(now)
        waiting = sum(lane.changes for lane in figures.waiting.values()) - figures.held
        drain_s, ratio = rates.drain_seconds(now, max(0, waiting)), rates.compression_ratio()
        return ExportedHost(figures, state, drain_s, ratio, self.checks.imbalance(host), self.promises(host))


@dataclass(slots=True)
class _Host:
    # Identifies the dead letters that the alerts cover; None: not known, as after a takeover.
    dead_letters: tuple[int, int] | None = None
    imbalance: int | None = None
    books_at: float = float("-inf")
    quiet_at: float = float("-inf")
    distance_at: float = float("-inf")
    mapping_at: float = float("-inf")
    was_far: bool = False


@dataclass(eq=False)
class HostChecks:
    """Checks the hosts (a duty, see `duty`): alerts about dead letters follow the figures, a worker that is far from
    MariaDB is reported, and states that another mapping made; alerts whose cause did not recur are closed, and the
    books are checked every few minutes. `figures`: the last of each host.
    """

    name = "checking dead letters, distances, mappings, quiet alerts and the books"
    host = "all hosts"
    pause_s = DUE_SECONDS

    transactions: Transactions
    leaderships: Mapping[str, Leadership]
    conditions: Conditions
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
        for host in self.leaderships.keys() - set(active):
            self.conditions.unknown(host, FAR)
            self.conditions.unknown(host, MAPPING)
        self._hosts = {host: self._hosts.get(host) or _Host() for host in active}
        with HostFailures() as failures:
            for check in (
                self._follow_dead_letters,
                self._look_at_distance,
                self._look_at_mapping,
                self._close_quiet_alerts,
                self._check_books,
            ):
                for host in active:
                    with failures.of(host):
                        await check(host, self._hosts[host], now)
        return DUE_SECONDS

    async def _follow_dead_letters(self, name: str, host: _Host, _now: float) -> None:
        if name in self.figures and self.figures[name].dead_letters_id != host.dead_letters:
            newest = self.figures[name].dead_letters_id
            await self.transactions.run(lambda connection: keep_dead_letter_alerts(connection, name), attempts=1)
            host.dead_letters = newest

    async def _look_at_distance(self, name: str, host: _Host, now: float) -> None:
        if now < host.distance_at + DISTANCE_SECONDS:
            return
        host.distance_at = now
        workers = await self.transactions.run(lambda connection: read_workers(connection, name), attempts=1)
        far = far_worker(workers, was_far=host.was_far)
        host.was_far = far is not None
        self.conditions.found(name, FAR, None if far is None else Fact(far.message, far.severity), now)

    async def _look_at_mapping(self, name: str, host: _Host, now: float) -> None:
        if now < host.mapping_at + MAPPING_SECONDS:
            return
        host.mapping_at = now
        others = await self.transactions.run(lambda connection: read_other_mappings(connection, name), attempts=1)
        why = f"Another mapping than {others.mapping} made {quantity(others.states, 'state')} that OldHost has."
        self.conditions.found(name, MAPPING, Fact(why, count=others.states) if others.states else None, now)

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


@dataclass(eq=False)
class LoadRecorder:
    """Records a sample of each host's load every ten seconds, for charts (a duty, see `duty`). A failure only leaves a
    hole in a chart.
    """

    name = "recording the load"
    host = "all hosts"
    pause_s = SAMPLE_SECONDS

    transactions: Transactions
    leaderships: Mapping[str, Leadership]

    async def run_once(self, now: float) -> float:
        """Record one sample for each host. A conflict is not retried: the next sample includes what this one missed."""
        with HostFailures() as failures:
            for host, leadership in self.leaderships.items():
                if leadership.held(now):
                    with failures.of(host):
                        await self.transactions.run(partial(record_sample, host=host), attempts=1)
        return SAMPLE_SECONDS
