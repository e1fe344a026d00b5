"""Watches all hosts that this process relays for, by figures read without a lock, and shows them to Prometheus.

It looks every ten seconds, or less often if looks would take more than a small share of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from oldhost_sync.policy.forecast.rates import Flow
from oldhost_sync.policy.rules.host_state import host_state
from oldhost_sync.relay.host_checks import HostChecks
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.read.figures import HostFigures, read_figures
from oldhost_sync.telemetry import ExportedHost, HostMetrics

LOOK_SECONDS = 10.0
# The pause after a look, as a multiple of its duration: looks take at most 1 % of the time.
PAUSE_FOR_EACH_SECOND = 100
# Figures that are overdue for longer are shown no more: rules must not rely on them.
OVERDUE_SECONDS_MAX = 60.0


@dataclass(eq=False)
class HostWatch:
    """A duty (see `duty`) for all hosts of `leaderships`; `owner` names this process in their leases. `troubles`: by
    "writer HOST", what is wrong with each writer (see `watchdog`). `flows`: what `promise_watch` saw. `checks` get the
    figures.
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
    checks: HostChecks
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
            return LOOK_SECONDS
        began = self.monotonic()
        found = await self.transactions.run(lambda connection: read_figures(connection, self.owner))
        pause = max(LOOK_SECONDS, PAUSE_FOR_EACH_SECOND * (self.monotonic() - began))
        self._figures = self.checks.figures = {host: found[host] for host in active if host in found}
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
        flow = self.flows.get(host) or Flow(now)
        waiting = sum(each.changes for each in figures.waiting.values()) - figures.held
        drain_s, ratio = flow.drain_seconds(now, max(0, waiting)), flow.compression_ratio()
        return ExportedHost(figures, state, drain_s, ratio, self.checks.imbalance(host))
