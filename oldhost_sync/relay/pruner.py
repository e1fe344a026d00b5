"""Forgets what ended long ago: a batch, a pause as long as the batch took, the next; and an hour's rest after a pass.

A pass that falls behind is told of (`retention-behind`): one that takes hours, one that fails again and again, and one
that is not begun because the database's clock says something else than ours (a clock that is far ahead would forget
everything).

Where settlement files are written, nothing is forgotten while their folder is not there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.pace import RelayPace
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.settlement.errors import FolderUnusable
from oldhost_sync.settlement.folder import SettlementFolder
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.ledger.settled_days import last_settled
from oldhost_sync.store.outbox import retention
from oldhost_sync.telemetry import RelayMetrics

ALERT_KIND = "retention-behind"
# A pass finds what ended in the hour before, some million rows at the very most: minutes of work. The first one after a
# long time may take longer; that is told of, and closed when it is through.
BEHIND_SECONDS = 2 * 3600.0
CLOCKS_APART_MAX = timedelta(days=1)


@dataclass(eq=False)
class Pruner:
    """One host's retention."""

    name = "forgetting what is old"

    transactions: Transactions
    leadership: Leadership
    pace: RelayPace
    metrics: RelayMetrics | None = None
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    folder: SettlementFolder | None = None
    _place: retention.PassPosition = retention.BEGINNING
    _began: float | None = None
    _told: bool = True  # perhaps by the relay before us

    def __post_init__(self) -> None:
        self.host = self.leadership.host
        self.pause_s = self.pace.pause_max_s

    async def run_once(self, now: float) -> float:
        """One batch; while there is more, the next comes soon."""
        if not await self.leadership.hold(now):
            self._began, self._place = None, retention.BEGINNING
            return self.pace.lease_s
        self._began = now if self._began is None else self._began
        try:
            apart = await self._clocks_apart()
            if apart > CLOCKS_APART_MAX:
                await self._tell(f"the database's clock and this machine's are {apart} apart; nothing is forgotten")
                return self.pace.retention_interval_s
            began = self.monotonic()
            done = await self.transactions.run(self._batch)
        except (StoreError, DBAPIError) as error:
            if now - self._began >= BEHIND_SECONDS:
                await self._tell(f"what is old can't be forgotten: {error}")
            raise
        self._place = done.place
        if self.metrics and done.gone:
            self.metrics.pruned.labels(self.host).inc(done.gone)
        if not done.more:
            await self._end_pass()
            return self.pace.retention_interval_s
        if now - self._began >= BEHIND_SECONDS:
            hours = (now - self._began) / 3600
            await self._tell(f"forgetting what is old has taken {hours:.0f} h and there is more: more ends than goes")
        return max(self.pace.poll_s, self.monotonic() - began)

    def _batch(self, connection: Connection) -> retention.Pruned:
        kept = replace(self.pace.retention, settles=self.folder is not None)
        if self.folder is not None:
            try:
                self.folder.require(last_settled(connection, self.host))
            except FolderUnusable:  # which the settler's alert tells
                return retention.Pruned(0, more=False, place=self._place)
        before = retention.horizon_of(connection, self.host, kept)
        return retention.prune(connection, self.host, before, rows=self.pace.retention_rows, place=self._place)

    async def _clocks_apart(self) -> timedelta:
        shown = await self.transactions.run(retention.database_clock)
        return abs(shown - datetime.fromtimestamp(self.wall(), UTC).replace(tzinfo=None))

    async def _end_pass(self) -> None:
        self._began, self._place = None, retention.BEGINNING
        if self._told:
            await self.transactions.run(lambda connection: close_alert(connection, self.host, ALERT_KIND))
            self._told = False

    async def _tell(self, message: str) -> None:
        self._told = True
        await self.transactions.run(
            lambda connection: raise_alert(connection, self.host, ALERT_KIND, "warning", message)
        )
