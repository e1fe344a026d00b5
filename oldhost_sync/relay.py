"""The relay hands the outbox to the writer: claimed by state, signalled in batches, marked when acknowledged.

Who is authoritative: the outbox. A change is marked only after Temporal has acknowledged the signal that carries it,
so whatever fails in between, it is signalled again, and the writer knows it by its id. One relay is active at a time by
a lease; two at once would only signal twice. An EMERGENCY goes at once, all else once a second, or as fast as full batches can. While the
writer holds more than it can use, only emergencies go on; everything else is safe in the outbox.

It also records scheduled changes when they are due, and forgets what ended long ago. When MariaDB or Temporal is away
it waits, with growing pauses and one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy import limits
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.store import outbox, retention, schedule
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.errors import InvalidChange, StoreError
from oldhost_sync.store.lease import release_lease, take_lease
from oldhost_sync.store.outbox import Unrelayed
from oldhost_sync.store.transactions import is_the_values_fault, run_in_transaction
from oldhost_sync.telemetry import RelayMetrics

logger = logging.getLogger(__name__)
T = TypeVar("T")

# A lock, or an outage that the other loop is just about to see, passes within fewer rounds than these.
LATE_ROUNDS_TOLD = 3

NOTHING = Unrelayed()

# Hands refs to the writer; returning means that they are durable there, raising that nobody knows.
Signal = Callable[[list[ChangeRef]], Awaitable[None]]


class SignalFailed(Exception):  # noqa: N818 - reads as what happened
    """The writer did not acknowledge: Temporal's or the network's fault. The batch stays unmarked; again, later."""


class Condition(StrEnum):
    """What the relay is doing; each change of it is one line in the log."""

    STARTING = "starting"
    ACTIVE = "active"
    STANDBY = "standby"
    HOLDING_BACK = "holding back"
    DATABASE_AWAY = "database away"
    WRITER_AWAY = "writer away"


@dataclass(frozen=True, slots=True)
class RelayPace:
    """How often and how much; every number's reason is in policy/limits.py."""

    batch_refs: int = limits.RELAY_BATCH_REFS_MAX
    signal_interval_s: float = limits.RELAY_SIGNAL_INTERVAL_SECONDS
    poll_s: float = limits.RELAY_POLL_SECONDS
    schedule_interval_s: float = limits.RELAY_SCHEDULE_INTERVAL_SECONDS
    schedule_batch: int = limits.RELAY_SCHEDULE_BATCH_MAX
    unprocessed_max: int = limits.RELAY_UNPROCESSED_MAX
    count_interval_s: float = limits.RELAY_COUNT_INTERVAL_SECONDS
    lease_s: float = limits.RELAY_LEASE_SECONDS
    pause_s: float = limits.RELAY_PAUSE_SECONDS
    pause_max_s: float = limits.RELAY_PAUSE_SECONDS_MAX
    retention_days: int = limits.RETENTION_DAYS
    retention_rows: int = limits.RETENTION_BATCH_ROWS
    retention_interval_s: float = limits.RETENTION_INTERVAL_SECONDS


@dataclass(slots=True)
class Round:
    """What one round did."""

    active: bool = False
    emergencies: list[ChangeRef] = field(default_factory=list)
    relayed: list[ChangeRef] = field(default_factory=list)
    held_back: bool = False


Seen = dict[str, Unrelayed]


class Lookout:
    """One look at the outbox for all hosts that a process relays, shared by their relays while it is `fresh_s` young.

    A deployment's hosts are idle most of the time; each asking for itself ten times a second would cost more than all they send.
    Who asks while a look is under way waits for it, and for its failure: a database that is away is waited for once, not by one
    host after the other.
    """

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._looked_at = float("-inf")
        self._look: asyncio.Task[Seen] | None = None

    async def look(self, now: float, ask: Callable[[], Coroutine[Any, Any, Seen]]) -> Seen:
        """What the look shows that is under way or fresh, or else a new one by `ask`, with whatever that raises."""
        if self._look is None or (self._look.done() and now >= self._looked_at + self._fresh_s):
            self._looked_at = now
            self._look = asyncio.create_task(ask())
        return await asyncio.shield(self._look)


class Relay:
    """One host's relay. `owner` names this process in the lease; `now` arguments are monotonic seconds."""

    def __init__(
        self,
        engine: Engine,
        signal: Signal,
        host: str,
        *,
        owner: str,
        lookout: Lookout | None = None,
        pace: RelayPace | None = None,
        metrics: RelayMetrics | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._engine = engine
        self._signal = signal
        self._host = host
        self._owner = owner
        self._lookout = lookout
        self._pace = pace or RelayPace()
        self._metrics = metrics
        self._monotonic = monotonic
        self._wall = wall
        self._chance = chance
        self.condition = Condition.STARTING
        self._failures = 0
        self._leased_until = float("-inf")
        self._lease_tried_at = float("-inf")
        self._signal_at = float("-inf")
        self._count_at = float("-inf")
        self._prune_at = float("-inf")
        self._room = 0
        self._late_rounds = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Relay and keep time until `stop` is set, through every outage; then give the lease up."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._loop(stop, self._guarded_round))
            loops.create_task(self._loop(stop, self._guarded_time_round))
        await self._release()

    async def run_once(self, now: float) -> Round:
        """One round: lease, emergencies, and a batch when its time has come.

        Raises StoreError or DBAPIError when the database is away, SignalFailed when the writer did not acknowledge.
        """
        done = Round(active=await self._hold_lease(now))
        if not done.active:
            return done
        seen = await self._look(now)
        if seen.emergency:
            done.emergencies = await self._relay_emergencies()
        if now >= self._signal_at and (seen.anything or now >= self._count_at):
            room = await self._room_at_writer(now)
            done.held_back = room <= 0
            if seen.anything:
                self._signal_at = now + self._pace.signal_interval_s
                done.relayed = await self._relay_batch(room) if room > 0 else []
            if len(done.relayed) == self._pace.batch_refs:
                self._signal_at = now  # there is more
        return done

    async def keep_time_once(self, now: float) -> int:
        """Record what is due and forget what is old; returns how many changes were due.

        A round of its own, since a change is due on time whether or not the writer can be reached. Raises StoreError
        or DBAPIError when the database is away.
        """
        if not await self._hold_lease(now):
            return 0
        due = await self._record_due()
        if now >= self._prune_at:
            await self._prune(now)
        return due

    # ------------------------------------------------------------------------------------------------- one round's parts

    async def _hold_lease(self, now: float) -> bool:
        """Renew at a third of the span, and ask no oftener when another relay holds it."""
        if now < self._lease_tried_at + self._pace.lease_s / 3:
            return now < self._leased_until
        self._lease_tried_at = now
        span = timedelta(seconds=self._pace.lease_s)
        held = await self._in_transaction(lambda connection: take_lease(connection, self._host, self._owner, span))
        self._leased_until = now + self._pace.lease_s if held else float("-inf")
        return held

    async def _look(self, now: float) -> Unrelayed:
        ask = partial(self._in_transaction, lambda connection: outbox.unrelayed(connection, self._owner))
        seen = await (self._lookout.look(now, ask) if self._lookout else ask())
        return seen.get(self._host, NOTHING)

    async def _relay_emergencies(self) -> list[ChangeRef]:
        batch = self._pace.batch_refs
        refs = await self._in_transaction(
            lambda connection: outbox.claim_batch(connection, self._host, batch, emergencies_only=True)
        )
        for start in range(0, len(refs), batch):
            await self._hand_over(refs[start : start + batch], "emergency")
        return refs

    async def _relay_batch(self, room: int) -> list[ChangeRef]:
        limit = min(self._pace.batch_refs, room)
        refs = await self._in_transaction(lambda connection: outbox.claim_batch(connection, self._host, limit))
        if refs:
            await self._hand_over(refs, "batch")
            self._room -= len(refs)
        return refs

    async def _hand_over(self, refs: list[ChangeRef], kind: str) -> None:
        """Signal first, mark after the acknowledgement; never the other way round."""
        try:
            await self._signal(refs)
        except Exception as error:
            # The next round tries again, or it would find nothing to do and pass for a recovery.
            self._signal_at = float("-inf")
            raise SignalFailed(f"{type(error).__name__}: {error}") from error
        ids = [ref.change_id for ref in refs]
        await self._in_transaction(lambda connection: outbox.mark_relayed(connection, ids))
        self._count_relayed(refs, kind)

    async def _room_at_writer(self, now: float) -> int:
        """How many more changes the writer may be given; counted anew now and then, and whenever it seems full."""
        if self._room <= 0 or now >= self._count_at:
            self._count_at = now + self._pace.count_interval_s
            most = self._pace.unprocessed_max
            held = await self._in_transaction(
                lambda connection: outbox.unprocessed_up_to(connection, self._host, most + 1)
            )
            self._room = most - held
            if self._metrics:
                self._metrics.unprocessed.labels(self._host).set(held)
        return self._room

    async def _record_due(self) -> int:
        """Record what is due in due order, each in its own transaction; a bad one is set aside and told of."""
        batch = self._pace.schedule_batch
        due = await self._in_transaction(lambda connection: schedule.due(connection, self._host, batch))
        for scheduled_id in due:
            await self._record_one(scheduled_id)
        if self._metrics and due:
            self._metrics.scheduled.labels(self._host).inc(len(due))
        return len(due)

    async def _record_one(self, scheduled_id: int) -> None:
        try:
            await self._in_transaction(lambda connection: schedule.record_due(connection, scheduled_id))
        except (InvalidChange, DBAPIError) as error:
            if isinstance(error, DBAPIError) and not is_the_values_fault(error):
                raise  # the database's trouble (a missing right, a missing table): the change keeps its place
            # The row's own fault would come again for ever.
            reason = f"scheduled change {scheduled_id} could not be recorded: {error}"
            logger.exception("relay of %s: %s", self._host, reason)
            await self._in_transaction(lambda connection: self._set_aside(connection, scheduled_id, reason))

    def _set_aside(self, connection: Connection, scheduled_id: int, reason: str) -> None:
        schedule.withdraw(connection, scheduled_id)
        raise_alert(
            connection,
            host=self._host,
            kind="schedule-failed",
            severity="critical",
            message=reason,
            dedupe_key=f"schedule-failed:{scheduled_id}",
        )

    async def _prune(self, now: float) -> None:
        pace = self._pace
        gone = await self._in_transaction(
            lambda connection: retention.prune(
                connection, self._host, days=pace.retention_days, rows=pace.retention_rows
            )
        )
        # While there is more, go on with the next round; then rest.
        self._prune_at = now + (0.0 if gone >= pace.retention_rows else pace.retention_interval_s)
        if self._metrics and gone:
            self._metrics.pruned.labels(self._host).inc(gone)

    async def _in_transaction(self, fn: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(run_in_transaction, self._engine, fn)

    # --------------------------------------------------------------------------------------------------- through outages

    @staticmethod
    async def _loop(stop: asyncio.Event, step: Callable[[], Awaitable[float]]) -> None:
        """Take steps until `stop`; each says how long to wait before the next."""
        while not stop.is_set():
            pause = await step()
            try:
                await asyncio.wait_for(stop.wait(), pause)
            except TimeoutError:
                continue

    async def _guarded_time_round(self) -> float:
        """One round of keeping time, and the pause after it."""
        try:
            due = await self.keep_time_once(self._monotonic())
        except (StoreError, DBAPIError) as error:
            self._be_late(error)
            return self._pace.schedule_interval_s
        if self._late_rounds >= LATE_ROUNDS_TOLD:
            logger.info("relay of %s: keeps time again", self._host)
        self._late_rounds = 0
        return self._pace.poll_s if due >= self._pace.schedule_batch else self._pace.schedule_interval_s

    def _be_late(self, error: Exception) -> None:
        """An outage is told of by the other loop, which sees it too; what fails here alone is told of once, here."""
        if self.condition is Condition.DATABASE_AWAY:
            self._late_rounds = 0
            return
        self._late_rounds += 1
        if self._metrics:
            self._metrics.failures.labels(self._host, "keeping time").inc()
        if self._late_rounds == LATE_ROUNDS_TOLD:
            logger.warning(
                "relay of %s: what is due can't be recorded, or what is old forgotten: %s", self._host, error
            )

    async def _guarded_round(self) -> float:
        """One round, and the pause after it."""
        try:
            done = await self.run_once(self._monotonic())
        except SignalFailed as error:
            return self._failed(Condition.WRITER_AWAY, error)
        except (StoreError, DBAPIError) as error:
            return self._failed(Condition.DATABASE_AWAY, error)
        self._failures = 0
        if not done.active:
            self._become(Condition.STANDBY)
        elif done.held_back:
            self._become(Condition.HOLDING_BACK, f"the writer holds {self._pace.unprocessed_max} changes or more")
        elif self.condition is not Condition.HOLDING_BACK or self._room > 0:
            self._become(Condition.ACTIVE)
        return self._pace.poll_s

    def _failed(self, condition: Condition, error: Exception) -> float:
        if self._metrics:
            self._metrics.failures.labels(self._host, condition.value).inc()
        self._become(condition, str(error))
        longest: float = min(self._pace.pause_s * 2.0**self._failures, self._pace.pause_max_s)
        self._failures = min(self._failures + 1, 30)
        return longest * (0.5 + self._chance() / 2)

    def _become(self, condition: Condition, why: str = "") -> None:
        if condition is self.condition:
            return
        level = logging.WARNING if condition in {Condition.DATABASE_AWAY, Condition.WRITER_AWAY} else logging.INFO
        logger.log(level, "relay of %s: %s%s", self._host, condition.value, f" ({why})" if why else "")
        if self._metrics:
            self._metrics.condition.labels(self._host, self.condition.value).set(0)
            self._metrics.condition.labels(self._host, condition.value).set(1)
        self.condition = condition

    async def _release(self) -> None:
        try:
            await self._in_transaction(lambda connection: release_lease(connection, self._host, self._owner))
        except (StoreError, DBAPIError) as error:
            logger.info("relay of %s: the lease was left to run out (%s)", self._host, error)

    def _count_relayed(self, refs: Sequence[ChangeRef], kind: str) -> None:
        if not self._metrics:
            return
        self._metrics.signals.labels(self._host, kind).inc()
        now_ms = self._wall() * 1000
        for ref in refs:
            self._metrics.relayed.labels(self._host, ref.priority_class.value).inc()
            waited = max(0.0, (now_ms - ref.accepted_at_ms) / 1000)
            self._metrics.wait_seconds.labels(self._host, ref.priority_class.value).observe(waited)
