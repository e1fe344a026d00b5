"""Writes a settlement file for each day that is over, and releases days that are old enough to retention.

It catches up day by day. What stops it is told of (`settlement-stopped`), and retention waits with it: what no file has
is not deleted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sqlalchemy.exc import DBAPIError

from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.pace import RelayPace
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.settlement.day_settlement import release_next, settle_next
from oldhost_sync.settlement.errors import SettlementError
from oldhost_sync.settlement.folder import SettlementFolder
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import StoreError

logger = logging.getLogger(__name__)

ALERT_KIND = "settlement-stopped"
# Rounds, five seconds apart, that MariaDB refused though it answers: an outage would have kept it from telling.
FAILURES_TOLD = 5


@dataclass(eq=False)
class Settler:
    """One host's settlement files (a duty, see `duty`)."""

    name = "settling days"

    transactions: Transactions
    leadership: Leadership
    pace: RelayPace
    folder: SettlementFolder
    monotonic: Callable[[], float] = time.monotonic
    _told: bool = True  # perhaps by the relay before us
    _failures: int = 0

    def __post_init__(self) -> None:
        self.host = self.leadership.host
        self.pause_s = self.pace.pause_max_s

    async def run_once(self, now: float) -> float:
        """One day; while there are more, the next comes after a pause as long as it took."""
        if not await self.leadership.hold(now):
            return self.pace.lease_s
        began = self.monotonic()
        try:
            done = await self._settle_or_release()
        except (SettlementError, OSError) as error:
            await self._tell(f"{error}. Nothing is settled or pruned until then.")
            return self.pace.settlement_interval_s
        except (StoreError, DBAPIError) as error:  # an outage is told of by others, and ends
            self._failures += 1
            if self._failures >= FAILURES_TOLD:
                await self._tell(f"MariaDB does not let it: {error}. Nothing is settled or pruned until then.")
            raise
        except Exception as error:
            name = type(error).__name__
            await self._tell(f"It stopped at a fault of ours ({name}: {error}). Report it with the relay's log.")
            raise
        self._failures = 0
        return max(self.pace.poll_s, self.monotonic() - began) if done else self.pace.settlement_interval_s

    async def _settle_or_release(self) -> bool:
        """Whether there may be more to do at once."""
        step = await self.transactions.run(partial(settle_next, folder=self.folder))
        if step.late:
            await self._tell(f"{step.waits}. Nothing that ended since is pruned.")
        if step.settled is not None:
            logger.info("%s is settled for %s: %s records", step.settled.day, self.host, step.settled.records)
            done = True
        else:
            release = partial(release_next, folder=self.folder, ledger_days=self.pace.retention.ledger)
            done = await self.transactions.run(release) is not None
        if self._told and not step.late:
            await self.transactions.run(lambda connection: close_alert(connection, self.host, ALERT_KIND))
            self._told = False
        return done

    async def _tell(self, message: str) -> None:
        self._told = True
        await self.transactions.run(
            lambda connection: raise_alert(connection, self.host, ALERT_KIND, "warning", message)
        )
