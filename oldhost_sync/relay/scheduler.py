"""Records scheduled changes when they are due, in due order, each in its own transaction.

The database's clock decides what is due, whether or not the writer can be reached. A change that can't be recorded
because of its own values is withdrawn, with an alert; one that the database can't take now keeps its place. While an
application locks an entity's row, the entity's changes wait for the next round, and all others are recorded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy.rules.alert_cause import cause_of
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.pace import RelayPace
from oldhost_sync.relay.shared_poll import SharedPoll
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.errors import InvalidChange, TransactionContended, error_code, is_the_values_fault
from oldhost_sync.store.intake import schedule
from oldhost_sync.telemetry import RelayMetrics

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Scheduler:
    """One host's scheduled changes. `poll`: hosts with due changes, shared by all schedulers of a process."""

    name = "recording what is due"

    transactions: Transactions
    leadership: Leadership
    pace: RelayPace
    metrics: RelayMetrics | None = None
    poll: SharedPoll[frozenset[str]] | None = None
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.host = self.leadership.host
        self.pause_s = self.pace.schedule_interval_s

    async def run_once(self, now: float) -> float:
        """Record the changes that are due."""
        if await self.leadership.hold(now) and await self._anything_due(now):
            await self.record_due(now)
        return self.pace.schedule_interval_s

    async def _anything_due(self, now: float) -> bool:
        if self.poll is None:
            return True
        owner = self.leadership.owner
        ask = partial(self.transactions.look, lambda connection: schedule.hosts_due(connection, owner))
        return self.host in await self.poll.poll(now, ask)

    async def record_due(self, now: float) -> int:
        """Returns how many were recorded or withdrawn. Raises StoreError or DBAPIError when the database is away."""
        locked: set[tuple[str, str]] = set()
        done, last = 0, None
        while await self.leadership.hold(now):
            page = await self._page(last)
            for each in page:
                if each.entity in locked:
                    continue
                if await self._record(each):
                    done += 1
                else:
                    locked.add(each.entity)
            if len(page) < self.pace.schedule_batch:
                break
            last, now = page[-1], self.monotonic()
        if self.metrics and done:
            self.metrics.scheduled.labels(self.host).inc(done)
        return done

    async def _page(self, last: schedule.Due | None) -> list[schedule.Due]:
        batch = self.pace.schedule_batch
        return await self.transactions.run(lambda connection: schedule.due(connection, self.host, batch, last))

    async def _record(self, due: schedule.Due) -> bool:
        """Record a due change; False while its entity's row is locked."""
        try:
            await self.transactions.run(lambda connection: schedule.record_due(connection, due), attempts=1)
        except TransactionContended:
            return False
        except (InvalidChange, DBAPIError) as error:
            if isinstance(error, DBAPIError) and not is_the_values_fault(error):
                raise  # the database's fault (a missing privilege or table): the change keeps its place
            # The same values would fail in every round.
            reason = f"scheduled change {due.scheduled_id} could not be recorded: {error}"
            logger.exception("relay of %s: %s", self.host, reason)
            cause = cause_of(str(error) if isinstance(error, InvalidChange) else f"MariaDB {error_code(error)}")
            await self.transactions.run(lambda connection: self._set_aside(connection, due.scheduled_id, reason, cause))
        return True

    def _set_aside(self, connection: Connection, scheduled_id: int, reason: str, cause: str) -> None:
        schedule.withdraw(connection, scheduled_id)
        key = f"schedule-failed:{cause}"
        raise_alert(connection, self.host, "schedule-failed", "critical", reason, dedupe_key=key, adds=True)
