"""Writes a settlement file for each past day, and lets retention delete days that are old enough.

It catches up day by day. Whatever stops it raises an alert (`settlement-stopped`), and stops retention, too: operations
that are in no file are not deleted.

A folder on a network may hang for hours, so whatever needs it runs on a thread of its own (`files`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.pace import RelayPace
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.settlement.day_settlement import release_next, settle_next
from oldhost_sync.settlement.settlement_file import SettlementError, SettlementFolder
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import StoreError

T = TypeVar("T")

logger = logging.getLogger(__name__)

ALERT_KIND = "settlement-stopped"
# An alert is raised after this many rounds, five seconds apart, that MariaDB refused. In an outage none can be raised.
FAILURES_TOLD = 5


@dataclass(eq=False)
class Settler:
    """One host's settlement files (a duty, see `duty`)."""

    name = "settling days"

    transactions: Transactions
    files: Transactions
    leadership: Leadership
    pace: RelayPace
    folder: SettlementFolder
    monotonic: Callable[[], float] = time.monotonic
    _alerted: bool = True  # possibly by an earlier relay process
    _failures: int = 0

    def __post_init__(self) -> None:
        self.host = self.leadership.host
        self.pause_s = self.pace.pause_max_s

    async def run_once(self, now: float) -> float:
        """Settle or release one day; while there are more, pause for as long as it took."""
        if not await self.leadership.hold(now):
            return self.pace.lease_s
        began = self.monotonic()
        try:
            done = await self._settle_or_release()
        except (SettlementError, OSError) as error:
            why = str(error)
            if isinstance(error, OSError) and error.strerror:
                why = f"{error.filename or self.folder.path} can't be used: {error.strerror}"
            await self._alert(f"{why}. Nothing is settled or pruned until this is corrected.")
            return self.pace.settlement_interval_s
        except (StoreError, DBAPIError) as error:  # other alerts report an outage
            self._failures += 1
            if self._failures >= FAILURES_TOLD:
                await self._alert(f"MariaDB refuses it: {error}. Nothing is settled or pruned until this is corrected.")
            raise
        except Exception as error:
            name = type(error).__name__
            await self._alert(f"It stopped at a bug of ours ({name}: {error}). Report it with the relay's log.")
            raise
        self._failures = 0
        return max(self.pace.poll_s, self.monotonic() - began) if done else self.pace.settlement_interval_s

    async def _settle_or_release(self) -> bool:
        """Whether there may be more to do at once."""
        step = await self._in_folder(partial(settle_next, folder=self.folder))
        if step.late:
            await self._alert(f"{step.waits}. Nothing that ended after that is pruned.")
        if step.settled is not None:
            logger.info("%s is settled for %s: %s records", step.settled.day, self.host, step.settled.records)
            done = True
        else:
            release = partial(release_next, folder=self.folder, ledger_days=self.pace.retention.ledger)
            done = await self._in_folder(release) is not None
        if self._alerted and not step.late:
            await self.transactions.run(lambda connection: close_alert(connection, self.host, ALERT_KIND))
            self._alerted = False
        return done

    async def _in_folder(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn`. An alert is raised while it takes longer than the pause between two rounds."""
        longest = self.pace.settlement_interval_s
        work = asyncio.create_task(self.files.run(fn))
        while not (await asyncio.wait({work}, timeout=longest))[0]:
            with suppress(StoreError, DBAPIError):  # the next one may succeed
                if await self.leadership.hold(self.monotonic()):
                    await self._alert(
                        f"The folder {self.folder.path} has not answered for {longest / 60:.0f} minutes: check its "
                        "disk or its network. Nothing is settled or pruned until it answers."
                    )
        return work.result()

    async def _alert(self, message: str) -> None:
        self._alerted = True
        await self.transactions.run(
            lambda connection: raise_alert(connection, self.host, ALERT_KIND, "warning", message)
        )
