"""Forgets what ended long ago, a batch at a time, and rests when there is no more."""

from __future__ import annotations

from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.pace import RelayPace
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store import retention
from oldhost_sync.telemetry import RelayMetrics


class Pruner:
    """One host's retention."""

    name = "forgetting what is old"

    def __init__(
        self,
        transactions: Transactions,
        leadership: Leadership,
        pace: RelayPace,
        metrics: RelayMetrics | None = None,
    ) -> None:
        self._transactions = transactions
        self._leadership = leadership
        self._pace = pace
        self._metrics = metrics
        self.host = leadership.host
        self.pause_s = pace.pause_max_s

    async def run_once(self, now: float) -> float:
        """One batch; while there is more, the next comes soon."""
        if not await self._leadership.hold(now):
            return self._pace.lease_s
        pace = self._pace
        gone = await self._transactions.run(
            lambda connection: retention.prune(
                connection, self.host, days=pace.retention_days, rows=pace.retention_rows
            )
        )
        if self._metrics and gone:
            self._metrics.pruned.labels(self.host).inc(gone)
        return pace.poll_s if gone >= pace.retention_rows else pace.retention_interval_s
