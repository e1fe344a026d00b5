"""The relay sends the outbox to the writer: it claims changes by state, signals them in batches, and marks them.

The outbox is authoritative. A change is marked only after Temporal has acknowledged its signal; if anything fails
before that, it is signalled again, and the writer recognizes it by its id. A lease keeps one relay active at a time;
two at once would only signal twice. Emergencies are looked for every 50 ms and signalled at once. Other changes are
signalled once a second, every two seconds while fewer than 20 wait (every four if the writer has 300 or more),
and every 0.1 s while batches are full. While the writer has more than it can use, only emergencies are relayed; the
rest is safe in the outbox. While MariaDB or Temporal is away, the relay retries with growing pauses and logs one line.
It may be the only one that can't reach Temporal, so it offers its lease to the others.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy import limits
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.relay.duty import RelayPace, repeat
from oldhost_sync.relay.leadership import Leadership, Renewals
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.errors import StoreError, in_words
from oldhost_sync.store.outbox import outstanding_changes
from oldhost_sync.store.outbox.outstanding_changes import Unrelayed, await_unrelayed
from oldhost_sync.telemetry import RelayMetrics
from oldhost_sync.traces.change_spans import relay_span
from oldhost_sync.traces.span import Span
from oldhost_sync.traces.tracer import Tracer

logger = logging.getLogger(__name__)

NOTHING = Unrelayed()

# The pause after a count, as a multiple of its duration: counting takes 5 % of the time at most.
COUNTING_PAUSE = 20
# The most changes held behind dead letters that are counted: a million takes some seconds, and a statement ends after
# 8.
HELD_BACK_COUNTED_MAX = 1_000_000

# Sends refs to the writer. When it returns, they are durable at Temporal; when it raises, that is unknown.
Signal = Callable[[list[ChangeRef]], Awaitable[None]]


class SignalFailed(Exception):  # noqa: N818 - reads as what happened
    """The writer did not acknowledge: Temporal's or the network's fault. The batch stays unmarked and is retried."""


class RelayState(StrEnum):
    """What the relay is doing; each transition is logged as one line."""

    STARTING = "starting"
    ACTIVE = "active"
    STANDBY = "standby"
    HOLDING_BACK = "holding back"
    DATABASE_AWAY = "database away"
    WRITER_AWAY = "writer away"


@dataclass(slots=True)
class RelayRound:
    """What one round did."""

    active: bool = False
    emergencies: list[ChangeRef] = field(default_factory=list)
    relayed: list[ChangeRef] = field(default_factory=list)
    held_back: bool = False


@dataclass(eq=False)
class Relay:
    """One host's relay. `owner` names this process in the lease; `now` arguments are monotonic seconds.

    `watch` waits for unrelayed changes, shared with the process's other relays; without it each round polls itself.
    `condition` and `why`: what it is doing, and the last error while it fails.
    """

    transactions: Transactions
    signal: Signal
    host: str
    owner: str
    watch: OutboxWatch | None = None
    pace: RelayPace = field(default_factory=RelayPace)
    metrics: RelayMetrics | None = None
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    renewals: Renewals | None = None
    tracer: Tracer | None = None
    condition: RelayState = RelayState.STARTING
    why: str = ""
    _failures: int = 0
    _seen: Unrelayed = NOTHING
    _signal_at: float = float("-inf")
    _offer_at: float = float("-inf")
    _calm_until: float = float("-inf")
    _count_at: float = float("-inf")
    _recount_at: float = float("-inf")
    _room: int = 0
    # Changes that the writer has but that can't be marked yet, because their rows are locked.
    _unmarked: set[int] = field(default_factory=set)
    _mark_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.leadership = Leadership(self.transactions, self.host, self.owner, self.pace.lease_s, self.renewals)

    async def run(self, stop: asyncio.Event) -> None:
        """Relay until `stop` is set, through every outage; then release the lease."""
        await self.repeat(stop)
        await self.release()

    async def repeat(self, stop: asyncio.Event) -> None:
        """Relay until `stop` is set, through every outage."""
        await repeat(stop, self._guarded_round)

    async def run_once(self, now: float) -> RelayRound:
        """One round: lease, emergencies, and a batch when one is due.

        Raises StoreError or DBAPIError when the database is away, SignalFailed when the writer did not acknowledge.
        """
        done = RelayRound(active=await self.leadership.hold(now))
        if not done.active:
            return done
        await self._mark_unmarked(now)
        seen = self._seen if self.watch else await self._look()
        if seen.emergency:
            done.emergencies = await self._relay_emergencies()
        if now >= self._signal_at and (seen.anything or now >= self._count_at) and not await self._is_calm(seen, now):
            room = await self._room_at_writer(now)
            done.held_back = room <= 0
            if seen.anything:
                self._signal_at = now + self.pace.signal_interval_s
                done.relayed = await self._relay_batch(room) if room > 0 else []
            if len(done.relayed) == self.pace.batch_refs:
                self._signal_at = now + self.pace.poll_s  # there is more
            elif done.relayed:
                self._calm_until = now + self._calm_interval_s()
        return done

    # ------------------------------------------------------------------------------------------------ one round's parts

    async def _look(self) -> Unrelayed:
        seen = await self.transactions.poll(lambda connection: outstanding_changes.unrelayed(connection, self.owner))
        return seen.get(self.host, NOTHING)

    def _watch_timeout_s(self, now: float) -> float | None:
        """How long to wait for new changes: until the waiting ones must be signalled or marked. None: until a wait
        ends, which, while the database is away, is the only sign that it is back.
        """
        if self.condition is RelayState.DATABASE_AWAY:
            return None
        times = [self._signal_at] if self._seen.anything else []
        times += [self._mark_at] if self._unmarked else []
        return max(0.0, min(times) - now) if times else None

    def _calm_interval_s(self) -> float:
        has_backlog = self.pace.unprocessed_max - self._room >= limits.RELAY_BACKLOG_CHANGES
        return self.pace.backlog_interval_s if has_backlog else self.pace.calm_interval_s

    async def _is_calm(self, seen: Unrelayed, now: float) -> bool:
        """Whether few changes wait for the next signal, and none for long: then it is postponed."""
        if not seen.anything or now >= self._calm_until:
            return False
        most = limits.RELAY_CALM_CHANGES_MAX
        is_calm = len(await self._claim(most)) < most
        if is_calm:
            self._signal_at = min(self._calm_until, now + self.pace.signal_interval_s)  # a burst may begin
        return is_calm

    async def _relay_emergencies(self) -> list[ChangeRef]:
        batch = self.pace.batch_refs
        refs = await self._claim(batch, emergencies_only=True)
        for start in range(0, len(refs), batch):
            await self._hand_over(refs[start : start + batch], "emergency")
        return refs

    async def _relay_batch(self, room: int) -> list[ChangeRef]:
        limit = min(self.pace.batch_refs, room)
        refs = await self._claim(limit)
        if refs:
            await self._hand_over(refs, "batch")
            self._room -= len(refs)
        return refs

    async def _claim(self, limit: int, *, emergencies_only: bool = False) -> list[ChangeRef]:
        """The next changes that the writer does not have, without those that it has and that can't be marked yet."""
        most = limit + len(self._unmarked)
        refs = await self.transactions.run(
            lambda connection: outstanding_changes.claim_batch(
                connection, self.host, most, emergencies_only=emergencies_only
            )
        )
        new = [ref for ref in refs if ref.change_id not in self._unmarked]
        return new if emergencies_only else new[:limit]

    async def _remember_unmarked(self, ids: list[int]) -> None:
        self._unmarked |= set(
            await self.transactions.run(lambda connection: outstanding_changes.unmarked(connection, ids))
        )
        if len(self._unmarked) > limits.RELAY_UNMARKED_MAX:
            self._unmarked.clear()  # they are signalled again, and the writer recognizes them by their ids

    async def _mark_unmarked(self, now: float) -> None:
        if not self._unmarked or now < self._mark_at:
            return
        self._mark_at = now + self.pace.signal_interval_s
        ids = sorted(self._unmarked)
        self._unmarked.clear()
        await self.transactions.run(lambda connection: outstanding_changes.mark_relayed(connection, ids))
        await self._remember_unmarked(ids)

    async def _hand_over(self, refs: list[ChangeRef], kind: str) -> None:
        """Signal first; mark after the acknowledgement."""
        try:
            await self.signal(refs)
        except Exception as error:
            # So that the next round tries again; else it would have nothing to do and look like a recovery.
            self._signal_at = float("-inf")
            raise SignalFailed(f"{type(error).__name__}: {error}") from error
        ids = [ref.change_id for ref in refs]
        marked = await self.transactions.run(lambda connection: outstanding_changes.mark_relayed(connection, ids))
        if marked < len(ids):
            await self._remember_unmarked(ids)
        self._count_relayed(refs, kind)
        if self.tracer:
            # 20 ms for a full batch; in a thread, so that the other hosts' relays continue.
            await asyncio.to_thread(self.tracer.record, partial(_relay_spans, self.tracer, self.host, refs))

    async def _room_at_writer(self, now: float) -> int:
        """How many more changes the writer may get; counted again at intervals, and whenever it seems full.

        Changes held behind a dead letter stay in the database and do not count. They are expensive to count, so that is
        done only when the writer seems full, and takes only a small share of the time.
        """
        if now >= self._count_at or (self._room <= 0 and now >= self._recount_at):
            began = self.monotonic()
            most = self.pace.unprocessed_max
            at_writer = await self.transactions.run(lambda connection: self._at_writer(connection, most))
            took = self.monotonic() - began
            self._count_at = now + max(self.pace.count_interval_s, COUNTING_PAUSE * took)
            self._recount_at = now + COUNTING_PAUSE * took
            self._room = most - at_writer
            if self.metrics:
                self.metrics.unprocessed.labels(self.host).set(at_writer)
        return self._room

    def _at_writer(self, connection: Connection, most: int) -> int:
        unprocessed = outstanding_changes.unprocessed_up_to(connection, self.host, most + 1)
        if unprocessed < most:
            return unprocessed
        held = outstanding_changes.held_back_up_to(connection, self.host, HELD_BACK_COUNTED_MAX)
        if not held:
            return unprocessed
        return outstanding_changes.unprocessed_up_to(connection, self.host, most + 1 + held) - held

    # -------------------------------------------------------------------------------------------------- through outages

    async def _guarded_round(self) -> float:
        """One round, and the pause after it."""
        try:
            if self.watch and self.leadership.held(self.monotonic()):
                self._seen = await self.watch.poll(self.host, self._watch_timeout_s(self.monotonic()))
            done = await self.run_once(self.monotonic())
        except SignalFailed as error:
            await self._offer_lease()
            return self._failed(RelayState.WRITER_AWAY, error)
        except (StoreError, DBAPIError) as error:
            return self._failed(RelayState.DATABASE_AWAY, error)
        self._failures = 0
        if not done.active:
            self._become(RelayState.STANDBY)
        elif done.held_back:
            self._become(RelayState.HOLDING_BACK, f"the writer has {self.pace.unprocessed_max} changes or more")
        elif self.condition is not RelayState.HOLDING_BACK or self._room > 0:
            self._become(RelayState.ACTIVE)
        return 0.0 if self.watch and done.active else self.pace.poll_s

    async def _offer_lease(self) -> None:
        """Another relay may reach Temporal although this one can't."""
        now = self.monotonic()
        if now < self._offer_at:
            return
        with suppress(StoreError, DBAPIError):  # the next round tells
            if await self.leadership.offer(now):
                self._offer_at = now + self.pace.offer_interval_s

    def _failed(self, condition: RelayState, error: Exception) -> float:
        if self.metrics:
            self.metrics.failures.labels(self.host, condition.value).inc()
        self._become(condition, in_words(error))
        longest: float = min(self.pace.pause_s * 2.0**self._failures, self.pace.pause_max_s)
        self._failures = min(self._failures + 1, 30)
        return longest * (0.5 + self.chance() / 2)

    def _become(self, condition: RelayState, why: str = "") -> None:
        self.why = why
        if condition is self.condition:
            return
        level = logging.WARNING if condition in {RelayState.DATABASE_AWAY, RelayState.WRITER_AWAY} else logging.INFO
        logger.log(level, "relay of %s: %s%s", self.host, condition.value, f" ({why})" if why else "")
        if self.metrics:
            self.metrics.condition.labels(self.host, self.condition.value).set(0)
            self.metrics.condition.labels(self.host, condition.value).set(1)
        self.condition = condition

    async def release(self) -> None:
        """Release the lease; if that fails, it expires."""
        try:
            await self.leadership.release()
        except (StoreError, DBAPIError) as error:
            logger.info("relay of %s: the lease can't be released; it will expire (%s)", self.host, error)

    def _count_relayed(self, refs: Sequence[ChangeRef], kind: str) -> None:
        if not self.metrics:
            return
        self.metrics.signals.labels(self.host, kind).inc()
        now_ms = self.wall() * 1000
        for ref in refs:
            self.metrics.relayed.labels(self.host, ref.priority_class.value).inc()
            waited = max(0.0, (now_ms - ref.accepted_at_ms) / 1000)
            self.metrics.wait_seconds.labels(self.host, ref.priority_class.value).observe(waited)


def _relay_spans(tracer: Tracer, host: str, refs: Sequence[ChangeRef]) -> Iterator[Span]:
    now_ns = tracer.now_ns()
    for ref in refs:
        trace = tracer.trace_of(host, ref.change_id, ref.accepted_at_ms)
        if trace is not None:
            yield relay_span(host, ref, trace, now_ns)


_Wait = asyncio.Task[dict[str, Unrelayed]]


@dataclass(eq=False)
class OutboxWatch:
    """Waits for unrelayed changes of all hosts whose lease `owner` has, by one statement that waits inside MariaDB:
    polling from here took a fifth of an idle host's CPU, most of it for waking up. A relay that already has changes
    waiting for its next signal is not woken for more of them; any emergency wakes the relays at once.

    One wait runs at a time; waits begin at least `pace.poll_s` apart. `transactions` must look by single statements,
    and have a thread that nothing else needs.
    """

    transactions: Transactions
    owner: str
    pace: RelayPace = field(default_factory=RelayPace)
    _wait: _Wait | None = None
    _began_at: float = float("-inf")
    _ended_at: float = float("-inf")
    # By host: the last wait whose result its relay has got, and that result.
    _heard: dict[str, _Wait] = field(default_factory=dict)
    _seen: dict[str, Unrelayed] = field(default_factory=dict)

    async def poll(self, host: str, timeout_s: float | None) -> Unrelayed:
        """What the outbox has for `host`, once a wait ends; after `timeout_s` (None: no timeout) the last result.

        Raises what the wait raised: StoreError or DBAPIError, to each relay once.
        """
        if self._wait is None or self._heard.get(host) is self._wait or self._is_old():
            self._wait = asyncio.create_task(self._await_something())
            self._wait.add_done_callback(_take_failure)
        wait = self._wait
        if (await asyncio.wait({wait}, timeout=timeout_s))[0]:
            self._heard[host], self._seen[host] = wait, NOTHING
            self._seen[host] = wait.result().get(host, NOTHING)
        return self._seen.get(host, NOTHING)

    def _is_old(self) -> bool:
        return self._wait is not None and self._wait.done() and _now() >= self._ended_at + self.pace.poll_s

    async def _await_something(self) -> dict[str, Unrelayed]:
        await asyncio.sleep(max(0.0, self._began_at + self.pace.poll_s - _now()))
        self._began_at = _now()
        known = [host for host, seen in self._seen.items() if seen.anything]
        try:
            return await self.transactions.poll(
                lambda connection: await_unrelayed(connection, self.owner, known, self.pace.wait_s)
            )
        finally:
            self._ended_at = _now()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _take_failure(wait: _Wait) -> None:
    """Retrieve the exception: asyncio would log it if no relay waits any more."""
    if not wait.cancelled():
        wait.exception()
