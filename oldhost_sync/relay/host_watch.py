"""Watches all hosts that this process relays for: their metrics for Prometheus, and alerts that depend on their state.

It looks every ten seconds, or less often if looks would take more than a small share of the time. The books, which
count all rows, are checked every few minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from oldhost_sync.policy.flow import Flow
from oldhost_sync.policy.host_state import host_state
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.alert_decisions import close_quiet_alerts
from oldhost_sync.store.dead_letter_alerts import keep_dead_letter_alerts
from oldhost_sync.store.outbox.books import check_books
from oldhost_sync.store.views.host_figures import HostFigures, read_figures
from oldhost_sync.telemetry import ExportedHost, HostMetrics

LOOK_SECONDS = 10.0
# The pause after a look, as a multiple of its duration: looks take at most 1 % of the time.
PAUSE_FOR_EACH_SECOND = 100
BOOKS_SECONDS = 300.0
QUIET_SECONDS = 3600.0


@dataclass(slots=True)
class _Host:
    figures: HostFigures | None = None
    # Identifies the dead letters that the alerts cover; None: not known, as after a takeover.
    dead_letters: tuple[int, int] | None = None
    imbalance: int = 0
    books_at: float = float("-inf")
    quiet_at: float = float("-inf")


@dataclass(eq=False)
class HostWatch:
    """A duty (see `duty`) for all hosts of `leaderships`; `owner` names this process in their leases. `troubles`: by
    "writer HOST", what is wrong with each writer (see `watchdog`). `flows`: what `promise_watch` saw.
    """

    name = "looking at the hosts' figures"
    host = "all hosts"
    pause_s = LOOK_SECONDS

    transactions: Transactions
    leaderships: Mapping[str, Leadership]
    owner: str
    metrics: HostMetrics
    troubles: Callable[[], Mapping[str, str]]
    flows: Mapping[str, Flow]
    monotonic: Callable[[], float] = time.monotonic
    _hosts: dict[str, _Host] = field(default_factory=dict)

    async def run_once(self, now: float) -> float:
        """Look at every host that this process is active for."""
        active = [host for host, leadership in self.leaderships.items() if leadership.held(now)]
        for host in self._hosts.keys() - set(active):
            self.metrics.forget(host)
        self._hosts = {host: self._hosts.get(host) or _Host() for host in active}
        if not active:
            return LOOK_SECONDS
        began = self.monotonic()
        found = await self.transactions.run(lambda connection: read_figures(connection, self.owner))
        for host in active:
            if host in found:
                await self._look(host, found[host], now)
        return max(LOOK_SECONDS, PAUSE_FOR_EACH_SECOND * (self.monotonic() - began))

    async def _look(self, name: str, figures: HostFigures, now: float) -> None:
        host = self._hosts[name]
        await self._keep(name, figures, now)
        before, host.figures = host.figures, figures
        state = host_state(
            halted=figures.halted,
            paused=figures.paused_s is not None,
            banned=figures.ban_left_s > 0,
            writer_runs=not self.troubles().get(f"writer {name}", ""),
            fates_came=before is not None and figures.fates > before.fates,
        )
        flow = self.flows.get(name) or Flow(now)
        waiting = sum(each.changes for each in figures.waiting.values()) - figures.held
        drain_s, ratio = flow.drain_seconds(now, max(0, waiting)), flow.compression_ratio()
        self.metrics.show(name, ExportedHost(figures, state, drain_s, ratio, host.imbalance))

    async def _keep(self, name: str, figures: HostFigures, now: float) -> None:
        """The checks that are seldom due; most looks find nothing to do here."""
        host = self._hosts[name]
        if figures.dead_letters_id != host.dead_letters:
            await self.transactions.run(lambda connection: keep_dead_letter_alerts(connection, name))
            host.dead_letters = figures.dead_letters_id
        if now >= host.quiet_at + QUIET_SECONDS:
            await self.transactions.run(lambda connection: close_quiet_alerts(connection, name))
            host.quiet_at = now
        if now >= host.books_at + BOOKS_SECONDS:
            began = self.monotonic()
            host.imbalance = await self.transactions.run(lambda connection: check_books(connection, name))
            host.books_at = now + PAUSE_FOR_EACH_SECOND * (self.monotonic() - began)
