"""Watches the writers of all hosts that this process relays for: while changes are outstanding, the writer must run.

MariaDB has the outstanding changes and the new fates. A host with new fates has a running writer, so Temporal is not
asked. Without new fates Temporal is asked every few seconds: a writer that has ended is started again at once; one that
ends repeatedly, after growing pauses. What is wrong with it is reported (`policy/rules/conditions`). A host with
nothing outstanding is also checked at intervals, since a run that ended may have left signals unread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.relay.duty import HostFailures
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.relay.writers import TemporalDoesNotAnswer, Writers
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.outbox.outstanding_changes import HostProgress, progress
from oldhost_sync.store.read.sessions import read_workers, worker_silence
from oldhost_sync.temporal.writer_health import WriterHealth, WriterState, trouble

logger = logging.getLogger(__name__)

POLL_SECONDS = 3.0
IDLE_POLL_SECONDS = 15.0
# What is wrong is remembered so long after a host's lease went to another relay, which may give it back soon: it must
# not seem new then.
REMEMBERED_SECONDS = 60.0
# Hosts asked about at a time: a hundred hosts take a second, and Temporal has other work.
ASKED_AT_A_TIME = 5
# A writer that was started and has ended again is not started at every check.
START_PAUSE_SECONDS = 5.0
START_PAUSE_SECONDS_MAX = 60.0
# A writer that seems well is nudged so often while changes wait all the time: longer than the debounce, as a rule, so
# that it costs nothing where little happens, and a signal among many where much does.
NUDGE_SECONDS = 180.0

CLOSED, PAUSED, FAILING, NO_WORKER, AWAY = KINDS = (
    "writer-closed",
    "paused-in-temporal",
    "writer-failing",
    "no-worker",
    "temporal-away",
)
# Alerts whose cause may be that no worker is at work.
WORKERS_NEEDED = {FAILING, NO_WORKER}


@dataclass(frozen=True, slots=True)
class TemporalAway:
    """Temporal does not answer."""

    error: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is wrong with a writer: the `kind` of alert, and `why`; both empty if it seems well. `start`: start it, or
    attach to it when it runs. `nudge`: let it begin new timers, since those that it has are hours late if Temporal's
    clock was set back.
    """

    kind: str = ""
    why: str = ""
    start: bool = False
    nudge: bool = False


class WriterWatch:
    """One host's writer: what is wrong with it, and what to do. Pure; `now` in monotonic seconds."""

    def __init__(self) -> None:
        self._is_calm = True
        self._starts = 0
        self._started_at = float("-inf")
        # Since when changes wait all the time, or the last nudge.
        self._waits_since: float | None = None

    @property
    def is_calm(self) -> bool:
        """Whether nothing was wrong at the last check."""
        return self._is_calm

    def judge(self, seen: WriterHealth | TemporalAway, now: float, *, waiting: bool, silence: str = "") -> Judgement:
        """`waiting`: changes are outstanding. `silence`: that no worker is at work, and which was there last."""
        kind, why = _trouble(seen, waiting=waiting)
        if silence and kind in WORKERS_NEEDED:
            why = f"{silence} Temporal says: {why}"
        self._is_calm = not kind
        start = _is_gone(seen, waiting=waiting) and now >= self._started_at + self._start_pause()
        if start:
            self._starts += 1
            self._started_at = now
        elif not kind and now >= self._started_at + START_PAUSE_SECONDS_MAX:
            self._starts = 0
        return Judgement(kind, why, start, self._nudges(now, waiting=waiting and not kind))

    def _nudges(self, now: float, *, waiting: bool) -> bool:
        if not waiting or self._waits_since is None:
            self._waits_since = now if waiting else None
            return False
        if now < self._waits_since + NUDGE_SECONDS:
            return False
        self._waits_since = now
        return True

    def _start_pause(self) -> float:
        if not self._starts:
            return 0.0
        return min(START_PAUSE_SECONDS * 2.0 ** min(self._starts - 1, 10), START_PAUSE_SECONDS_MAX)


def _is_gone(seen: WriterHealth | TemporalAway, *, waiting: bool) -> bool:
    """Whether to start the writer. A run that ended may have left messages unread, even if nothing is outstanding; if
    there never was a run, there are none.
    """
    if isinstance(seen, TemporalAway):
        return False
    return seen.state is WriterState.CLOSED or (seen.state is WriterState.MISSING and waiting)


def _trouble(seen: WriterHealth | TemporalAway, *, waiting: bool) -> tuple[str, str]:
    if isinstance(seen, TemporalAway):
        return (AWAY, f"Temporal does not answer ({seen.error}) while changes wait") if waiting else ("", "")
    if seen.state is WriterState.CLOSED:
        return CLOSED, f"the writer does not run: {seen.error}; the relay starts it again"
    if seen.state is WriterState.PAUSED_IN_TEMPORAL:
        return PAUSED, f"the writer waits: {seen.error}; it goes on when a person unpauses it there"
    if seen.state is WriterState.FAILING:
        return FAILING, f"the writer is stuck: {seen.error}"
    # With nothing to do no worker is needed; an untaken task is something to do.
    if seen.state is WriterState.NO_WORKER and (waiting or seen.since is not None):
        return NO_WORKER, f"{seen.error}: {seen.advice or 'start one, or find out why the running ones take no tasks'}"
    return "", ""


@dataclass(slots=True)
class _Host:
    """`looked_at`: None if it must be looked at, as after a takeover."""

    watch: WriterWatch = field(default_factory=WriterWatch)
    progress: HostProgress | None = None
    looked_at: float | None = None
    trouble: str = ""
    hinders_roles: bool = False


@dataclass(eq=False)
class Watchdog:
    """A duty (see `duty`) for all hosts of `leaderships`; `owner` names this process in their leases."""

    name = "watching the writers"
    host = "all hosts"
    pause_s = POLL_SECONDS

    transactions: Transactions
    leaderships: Mapping[str, Leadership]
    writers: Writers
    conditions: Conditions
    owner: str
    _hosts: dict[str, _Host] = field(init=False)
    _asking: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ASKED_AT_A_TIME))

    def __post_init__(self) -> None:
        self._hosts = {host: _Host() for host in self.leaderships}

    async def run_once(self, now: float) -> float:
        """Check every host that this process is active for."""
        active = {host for host, leadership in self.leaderships.items() if leadership.held(now)}
        for host in self._hosts.keys() - active:
            self._leave(host, now)
        if not active:
            return POLL_SECONDS
        of_hosts = await self.transactions.poll(lambda connection: progress(connection, self.owner))
        known = {host: of_hosts.get(host, HostProgress()) for host in self._hosts if host in active}
        due = [host for host, seen in known.items() if self._is_due(self._hosts[host], seen, now)]
        with HostFailures() as failures:
            await asyncio.gather(*(self._check(failures, host, known[host], now) for host in due))
        return POLL_SECONDS

    def _leave(self, name: str, now: float) -> None:
        host = self._hosts[name]
        host.looked_at, host.trouble, host.hinders_roles = None, "", False
        for kind in KINDS:
            self.conditions.unknown(name, kind, remembered_until=now + REMEMBERED_SECONDS)

    def _is_due(self, host: _Host, progress: HostProgress, now: float) -> bool:
        """False if there are new fates, or if nothing is outstanding and the last check was a short time ago."""
        before, host.progress = host.progress, progress
        if not host.watch.is_calm or host.looked_at is None:
            return True
        if progress.outstanding and (before is None or before.fates == progress.fates):
            return True
        return now >= host.looked_at + IDLE_POLL_SECONDS

    def troubles(self) -> dict[str, str]:
        """What was wrong with each host's writer at the last check."""
        return {f"writer {name}": host.trouble for name, host in sorted(self._hosts.items())}

    def hindrances(self) -> dict[str, str]:
        """The same, but only what makes the role not ready."""
        return {
            f"writer {name}": host.trouble if host.hinders_roles else "" for name, host in sorted(self._hosts.items())
        }

    async def _check(self, failures: HostFailures, name: str, progress: HostProgress, now: float) -> None:
        host = self._hosts[name]
        host.looked_at = now
        async with self._asking:
            with failures.of(name):
                seen = await self._ask(name)
                host.trouble = "Temporal does not answer" if isinstance(seen, TemporalAway) else trouble(seen)
                host.hinders_roles = isinstance(seen, TemporalAway) or seen.hinders_roles
                silence = await self._silence(name, seen)
                judged = host.watch.judge(seen, now, waiting=progress.outstanding, silence=silence)
                for kind in KINDS:
                    self.conditions.found(name, kind, Fact(judged.why) if kind == judged.kind else None, now)
                if judged.start:
                    await self._start(name)
                if judged.nudge:
                    await self._nudge(name)

    async def _silence(self, host: str, seen: WriterHealth | TemporalAway) -> str:
        """That no worker is at work, by the workers' own reports: Temporal remembers a frozen one as polling."""
        if isinstance(seen, TemporalAway) or seen.state not in {WriterState.FAILING, WriterState.NO_WORKER}:
            return ""
        with suppress(StoreError, DBAPIError):
            silence = worker_silence(await self.transactions.poll(lambda connection: read_workers(connection, host)))
            return f"{silence.why} {silence.step}" if silence else ""
        return ""

    async def _ask(self, host: str) -> WriterHealth | TemporalAway:
        try:
            return await self.writers.health(host)
        except TemporalDoesNotAnswer as error:
            return TemporalAway(str(error))

    async def _start(self, host: str) -> None:
        try:
            await self.writers.start(host)
        except TemporalDoesNotAnswer as error:
            logger.warning("the writer of %s can't be started: %s", host, error)
        else:
            logger.warning("the writer of %s did not run and was started", host)

    async def _nudge(self, host: str) -> None:
        try:
            await self.writers.nudge(host)
        except TemporalDoesNotAnswer as error:
            logger.warning("the writer of %s can't be nudged: %s", host, error)
