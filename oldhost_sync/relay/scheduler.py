"""What the relay itself records: scheduled changes when they are due, and states that a resync sends again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy.limits import RESYNC_INTERVAL_SECONDS, RESYNC_POLL_SECONDS
from oldhost_sync.policy.rules.alert_cause import cause_of
from oldhost_sync.relay.duty import RelayPace
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import SharedPoll, Transactions
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.errors import InvalidChange, TransactionContended, error_code, is_the_values_fault
from oldhost_sync.store.intake import schedule
from oldhost_sync.store.intake.resync import (
    Resync,
    has_room,
    mark_unknown,
    next_share,
    oldest_unfinished,
    record_share,
)
from oldhost_sync.telemetry import RelayMetrics

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Scheduler:
    """Records one host's scheduled changes, in due order, each in its own transaction (a duty, see `duty`).

    The database's clock decides what is due, whether or not the writer can be reached. A change that can't be recorded
    because of its own values is withdrawn, with an alert; one that the database can't take now keeps its place. While
    an application locks an entity's row, the entity's changes wait for the next round, and all others are recorded.
    `poll`: hosts with due changes, shared by all schedulers of a process.
    """

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
        ask = partial(self.transactions.poll, lambda connection: schedule.hosts_due(connection, owner))
        return self.host in await self.poll.poll(now, ask)

    async def record_due(self, now: float) -> int:
        """Returns how many were recorded or withdrawn. Raises StoreError or DBAPIError when the database is away."""
        locked: set[tuple[str, str]] = set()
        done, last = 0, None
        while await self.leadership.hold(now):
            page = await self._page(last)
            for change in page:
                if change.entity in locked:
                    continue
                if await self._record(change):
                    done += 1
                else:
                    locked.add(change.entity)
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


@dataclass(eq=False)
class Resyncer:
    """Sends one host's states again for a requested `resync` (a duty, see `duty`): one a second, and only while nothing
    urgent waits. Changes recorded together would all be due at once after their debounce, and the burst would delay all
    other changes. It works on the oldest unfinished request, from its stored cursor, so a relay that takes over
    continues there.
    """

    name = "sending states again"
    pause_s = RESYNC_POLL_SECONDS

    transactions: Transactions
    leadership: Leadership

    def __post_init__(self) -> None:
        self.host = self.leadership.host

    async def run_once(self, now: float) -> float:
        """Record the states of the next entity, while there is room for them; then pause for each."""
        if not await self.leadership.hold(now):
            return RESYNC_POLL_SECONDS
        resync = await self.transactions.poll(partial(oldest_unfinished, host=self.host))
        if resync is None:
            return RESYNC_POLL_SECONDS
        if not await self.transactions.poll(partial(has_room, host=self.host)):
            return RESYNC_INTERVAL_SECONDS
        return max(1, await self._record(resync)) * RESYNC_INTERVAL_SECONDS

    async def _record(self, resync: Resync) -> int:
        share = await self.transactions.poll(partial(next_share, resync=resync))
        for entity, states in share.states.items():
            for event_type in states:
                mark = partial(mark_unknown, host=self.host, entity=entity, event_type=event_type)
                await self.transactions.poll(mark)
        try:
            return await self.transactions.run(partial(record_share, resync=resync, share=share), attempts=1)
        except TransactionContended:
            return 0  # an application has locked one of the entities: the next round tries again
