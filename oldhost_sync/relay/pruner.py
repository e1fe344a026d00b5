"""Forgets what ended long ago: a batch, a pause as long as the batch took, the next; and an hour's rest after a pass.

A pass that falls behind is told of (`retention-behind`): one that takes hours, one that fails again and again, and one that
is not begun because the database's clock says something else than ours (a clock that is far ahead would forget everything).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.pace import RelayPace
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.outbox import retention
from oldhost_sync.telemetry import RelayMetrics

ALERT_KIND = "retention-behind"
# A pass finds what ended in the hour before, some million rows at the very most: minutes of work. The first one after a
# long time may take longer; that is told of, and closed when it is through.
BEHIND_SECONDS = 2 * 3600.0
CLOCKS_APART_MAX = timedelta(days=1)


class Pruner:
    """One host's retention."""

    name = "forgetting what is old"

    def __init__(
        self,
        transactions: Transactions,
        leadership: Leadership,
        pace: RelayPace,
        metrics: RelayMetrics | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._transactions = transactions
        self._leadership = leadership
        self._pace = pace
        self._metrics = metrics
        self._monotonic = monotonic
        self._wall = wall
        self.host = leadership.host
        self.pause_s = pace.pause_max_s
        self._place = retention.BEGINNING
        self._began: float | None = None
        self._told = True  # perhaps by the relay before us

    async def run_once(self, now: float) -> float:
        """One batch; while there is more, the next comes soon."""
        if not await self._leadership.hold(now):
            self._began, self._place = None, retention.BEGINNING
            return self._pace.lease_s
        self._began = now if self._began is None else self._began
        try:
            apart = await self._clocks_apart()
            if apart > CLOCKS_APART_MAX:
                await self._tell(f"the database's clock and this machine's are {apart} apart; nothing is forgotten")
                return self._pace.retention_interval_s
            began = self._monotonic()
            done = await self._transactions.run(self._batch)
        except (StoreError, DBAPIError) as error:
            if now - self._began >= BEHIND_SECONDS:
                await self._tell(f"what is old can't be forgotten: {error}")
            raise
        self._place = done.place
        if self._metrics and done.gone:
            self._metrics.pruned.labels(self.host).inc(done.gone)
        if not done.more:
            await self._end_pass()
            return self._pace.retention_interval_s
        if now - self._began >= BEHIND_SECONDS:
            hours = (now - self._began) / 3600
            await self._tell(f"forgetting what is old has taken {hours:.0f} h and there is more: more ends than goes")
        return max(self._pace.poll_s, self._monotonic() - began)

    def _batch(self, connection: Connection) -> retention.Pruned:
        pace = self._pace
        return retention.prune(
            connection, self.host, days=pace.retention_days, rows=pace.retention_rows, place=self._place
        )

    async def _clocks_apart(self) -> timedelta:
        shown = await self._transactions.run(retention.database_clock)
        return abs(shown - datetime.fromtimestamp(self._wall(), UTC).replace(tzinfo=None))

    async def _end_pass(self) -> None:
        self._began, self._place = None, retention.BEGINNING
        if self._told:
            await self._transactions.run(lambda connection: close_alert(connection, self.host, ALERT_KIND))
            self._told = False

    async def _tell(self, message: str) -> None:
        self._told = True
        await self._transactions.run(
            lambda connection: raise_alert(
                connection,
                host=self.host,
                kind=ALERT_KIND,
                severity="warning",
                message=message,
                dedupe_key=ALERT_KIND,
            )
        )
