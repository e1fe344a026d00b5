"""Deletes rows that ended long ago: in batches, each followed by a pause as long as it took; an hour between passes.

A pass that falls behind raises an alert (`retention-behind`): if it takes hours, if it fails repeatedly, or if it can't
begin because the database's clock differs from ours (a clock that is far ahead would delete everything).

If settlement files are written, nothing is deleted while their folder is missing or hangs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.pace import RelayPace
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.settlement.settlement_file import FolderUnusable, SettlementFolder
from oldhost_sync.store import retention
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.ledger.settlement import last_settled
from oldhost_sync.telemetry import RelayMetrics

ALERT_KIND = "retention-behind"
# A pass deletes what has become old enough in the last hour, at most some million rows: minutes of work. The first pass
# after a long time may take longer: it raises the alert, which is closed when the pass ends.
BEHIND_SECONDS = 2 * 3600.0
CLOCKS_APART_MAX = timedelta(days=1)


@dataclass(eq=False)
class Pruner:
    """One host's retention. `files`: where the settlement folder is looked at, which may hang (see `settler`)."""

    name = "forgetting what is old"

    transactions: Transactions
    leadership: Leadership
    pace: RelayPace
    metrics: RelayMetrics | None = None
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    folder: SettlementFolder | None = None
    files: Transactions | None = None
    _place: retention.PassPosition = retention.BEGINNING
    _began: float | None = None
    _alerted: bool = True  # possibly by an earlier relay process

    def __post_init__(self) -> None:
        self.host = self.leadership.host
        self.pause_s = self.pace.pause_max_s

    async def run_once(self, now: float) -> float:
        """Delete one batch; while there is more, the next follows soon."""
        if not await self.leadership.hold(now):
            self._began, self._place = None, retention.BEGINNING
            return self.pace.lease_s
        self._began = now if self._began is None else self._began
        try:
            apart = await self._clocks_apart()
            if apart > CLOCKS_APART_MAX:
                await self._alert(f"the database's clock and this machine's differ by {apart}; nothing is deleted")
                return self.pace.retention_interval_s
            began = self.monotonic()
            done = await self._batch()
        except (StoreError, DBAPIError) as error:
            if now - self._began >= BEHIND_SECONDS:
                await self._alert(f"old rows can't be deleted: {error}")
            raise
        self._place = done.place
        if self.metrics and done.gone:
            self.metrics.pruned.labels(self.host).inc(done.gone)
        if not done.more:
            await self._end_pass()
            return self.pace.retention_interval_s
        if now - self._began >= BEHIND_SECONDS:
            hours = (now - self._began) / 3600
            await self._alert(f"deleting old rows has taken {hours:.0f} h so far: more rows are added than deleted")
        return max(self.pace.poll_s, self.monotonic() - began)

    async def _batch(self) -> retention.Pruned:
        if self.folder is not None:
            try:
                await (self.files or self.transactions).run(partial(self._require_files, self.folder))
            except FolderUnusable:  # the settler raises the alert for it
                return retention.Pruned(0, more=False, place=self._place)
        return await self.transactions.run(self._delete)

    def _require_files(self, folder: SettlementFolder, connection: Connection) -> None:
        folder.require(last_settled(connection, self.host))

    def _delete(self, connection: Connection) -> retention.Pruned:
        kept = replace(self.pace.retention, settles=self.folder is not None)
        before = retention.horizon_of(connection, self.host, kept)
        return retention.prune(connection, self.host, before, rows=self.pace.retention_rows, place=self._place)

    async def _clocks_apart(self) -> timedelta:
        shown = await self.transactions.run(retention.database_clock)
        return abs(shown - datetime.fromtimestamp(self.wall(), UTC).replace(tzinfo=None))

    async def _end_pass(self) -> None:
        self._began, self._place = None, retention.BEGINNING
        if self._alerted:
            await self.transactions.run(lambda connection: close_alert(connection, self.host, ALERT_KIND))
            self._alerted = False

    async def _alert(self, message: str) -> None:
        self._alerted = True
        await self.transactions.run(
            lambda connection: raise_alert(connection, self.host, ALERT_KIND, "warning", message)
        )
