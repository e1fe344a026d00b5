"""What ended long ago: a settlement file for each past day, then its rows are deleted. Two duties of a host.

Whatever stops the files stops the deleting, too: operations that are in no file are not deleted. What stops either, or
makes it fall behind, is reported (`policy/rules/conditions`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.relay.duty import RelayPace, is_outage
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.settlement.day_settlement import release_next, settle_next
from oldhost_sync.settlement.settlement_file import FolderUnusable, SettlementError, SettlementFolder
from oldhost_sync.store import retention
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.ledger.settlement import last_settled
from oldhost_sync.telemetry import RelayMetrics

T = TypeVar("T")

logger = logging.getLogger(__name__)

BEHIND, STOPPED = "retention-behind", "settlement-stopped"
CLOCKS_APART_MAX = timedelta(days=1)


@dataclass(eq=False)
class Pruner:
    """Deletes one host's old rows: in batches, each followed by a pause as long as it took; an hour between passes.

    A pass deletes what has become old enough in the last hour, at most some million rows: minutes of work. It can't
    begin while the database's clock differs from ours: one that is far ahead would delete everything. If settlement
    files are written, nothing is deleted while their folder is missing or hangs; `files`: where that is looked at.
    """

    name = "forgetting what is old"

    transactions: Transactions
    leadership: Leadership
    pace: RelayPace
    conditions: Conditions
    metrics: RelayMetrics | None = None
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    folder: SettlementFolder | None = None
    files: Transactions | None = None
    _place: retention.PassPosition = retention.BEGINNING
    _began: float | None = None

    def __post_init__(self) -> None:
        self.host = self.leadership.host
        self.pause_s = self.pace.pause_max_s

    async def run_once(self, now: float) -> float:
        """Delete one batch; while there is more, the next follows soon."""
        if not await self.leadership.hold(now):
            self._began, self._place = None, retention.BEGINNING
            self.conditions.unknown(self.host, BEHIND)
            return self.pace.lease_s
        self._began = now if self._began is None else self._began
        try:
            apart = await self._clocks_apart()
            if apart > CLOCKS_APART_MAX:
                why = f"the database's clock and this machine's differ by {apart}; nothing is deleted"
                self.conditions.found(self.host, BEHIND, Fact(why, at_once=True), now)
                return self.pace.retention_interval_s
            began = self.monotonic()
            done = await self._batch()
        except (StoreError, DBAPIError) as error:
            if not is_outage(error):
                self.conditions.found(self.host, BEHIND, Fact(f"old rows can't be deleted: {error}"), now)
            raise
        self._place = done.place
        if self.metrics and done.gone:
            self.metrics.pruned.labels(self.host).inc(done.gone)
        if not done.more:
            self._began, self._place = None, retention.BEGINNING
            self.conditions.found(self.host, BEHIND, None, now)
            return self.pace.retention_interval_s
        hours = (now - self._began) / 3600
        why = f"deleting old rows has taken {hours:.0f} h so far: more rows are added than deleted"
        self.conditions.found(self.host, BEHIND, Fact(why), now)
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


@dataclass(eq=False)
class Settler:
    """Writes one host's settlement file for each past day, and lets retention delete days that are old enough.

    A folder on a network may hang for hours, so whatever needs it runs on a thread of its own (`files`).
    """

    name = "settling days"

    transactions: Transactions
    files: Transactions
    leadership: Leadership
    pace: RelayPace
    folder: SettlementFolder
    conditions: Conditions
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.host = self.leadership.host
        self.pause_s = self.pace.pause_max_s

    async def run_once(self, now: float) -> float:
        """Settle or release one day; while there are more, pause for as long as it took."""
        if not await self.leadership.hold(now):
            self.conditions.unknown(self.host, STOPPED)
            return self.pace.lease_s
        began = self.monotonic()
        try:
            done = await self._settle_or_release(now)
        except (SettlementError, OSError) as error:
            why = str(error)
            if isinstance(error, OSError) and error.strerror:
                why = f"{error.filename or self.folder.path} can't be used: {error.strerror}"
            self._stopped(f"{why}. Nothing is settled or pruned until this is corrected.", now)
            return self.pace.settlement_interval_s
        except (StoreError, DBAPIError) as error:
            if not is_outage(error):  # which other alerts report
                why = f"MariaDB refuses it: {error}. Nothing is settled or pruned until this is corrected."
                self._stopped(why, now, at_once=False)
            raise
        except Exception as error:
            name = type(error).__name__
            self._stopped(f"It stopped at a bug of ours ({name}: {error}). Report it with the relay's log.", now)
            raise
        return max(self.pace.poll_s, self.monotonic() - began) if done else self.pace.settlement_interval_s

    async def _settle_or_release(self, now: float) -> bool:
        """Whether there may be more to do at once."""
        step = await self._in_folder(partial(settle_next, folder=self.folder))
        if step.late:
            self._stopped(f"{step.waits}. Nothing that ended after that is pruned.", now)
        if step.settled is not None:
            logger.info("%s is settled for %s: %s records", step.settled.day, self.host, step.settled.records)
            done = True
        else:
            release = partial(release_next, folder=self.folder, ledger_days=self.pace.retention.ledger)
            done = await self._in_folder(release) is not None
        if not step.late:
            self.conditions.found(self.host, STOPPED, None, now)
        return done

    async def _in_folder(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn`. It is reported while it takes longer than the pause between two rounds."""
        longest = self.pace.settlement_interval_s
        work = asyncio.create_task(self.files.run(fn))
        while not (await asyncio.wait({work}, timeout=longest))[0]:
            with suppress(StoreError, DBAPIError):  # the next one may succeed
                now = self.monotonic()
                if await self.leadership.hold(now):
                    why = (
                        f"The folder {self.folder.path} has not answered for {longest / 60:.0f} minutes: check its "
                        "disk or its network. Nothing is settled or pruned until it answers."
                    )
                    self._stopped(why, now)
        return work.result()

    def _stopped(self, why: str, now: float, *, at_once: bool = True) -> None:
        self.conditions.found(self.host, STOPPED, Fact(why, at_once=at_once), now)
