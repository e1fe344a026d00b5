"""Watches the writers of all hosts that this process relays for: while changes are outstanding, the writer must run.

MariaDB has the outstanding changes and the new fates. A host with new fates has a running writer, so Temporal is not
asked. Without new fates Temporal is asked every few seconds: a writer that has ended is started again, and one that is
stuck raises an alert (`writer_watch` decides). A host with nothing outstanding is also checked at intervals, since a
run that ended may have left signals unread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.relay.host_failures import HostFailures
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.relay.writer_watch import (
    KINDS,
    Action,
    CloseAlerts,
    NudgeWriter,
    OpenAlert,
    StartWriter,
    TemporalAway,
    WriterWatch,
)
from oldhost_sync.relay.writers import TemporalDoesNotAnswer, Writers
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.outbox.relay_queue import HostProgress, progress
from oldhost_sync.store.read.sessions import read_workers, worker_silence
from oldhost_sync.temporal.writer_health import WriterHealth, WriterState, trouble

logger = logging.getLogger(__name__)

LOOK_SECONDS = 3.0
IDLE_LOOK_SECONDS = 15.0
# What is known of a host is kept so long after its lease went to another relay, which may give it back soon: a problem
# must not seem new then.
REMEMBERED_SECONDS = 60.0
# Hosts asked about at a time: a hundred hosts take a second, and Temporal has other work.
ASKED_AT_A_TIME = 5


@dataclass(slots=True)
class _Host:
    watch: WriterWatch = field(default_factory=WriterWatch)
    progress: HostProgress | None = None
    looked_at: float = float("-inf")
    trouble: str = ""
    hinders_roles: bool = False


@dataclass(eq=False)
class Watchdog:
    """A duty (see `duty`) for all hosts of `leaderships`; `owner` names this process in their leases."""

    name = "watching the writers"
    host = "all hosts"
    pause_s = LOOK_SECONDS

    transactions: Transactions
    leaderships: Mapping[str, Leadership]
    writers: Writers
    owner: str
    _hosts: dict[str, _Host] = field(default_factory=dict)
    _lost: dict[str, tuple[float, _Host]] = field(default_factory=dict)
    _asking: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ASKED_AT_A_TIME))

    async def run_once(self, now: float) -> float:
        """Check every host that this process is active for."""
        active = [host for host, leadership in self.leaderships.items() if leadership.held(now)]
        self._lost |= {host: (now, known) for host, known in self._hosts.items() if host not in active}
        self._hosts = {host: self._hosts.get(host) or self._taken_over(host, now) for host in active}
        if active:
            found = await self.transactions.look(lambda connection: progress(connection, self.owner))
            due = [host for host in active if self._is_due(self._hosts[host], found.get(host, HostProgress()), now)]
            await self._check_all(due, found, now)
        return LOOK_SECONDS

    def _taken_over(self, name: str, now: float) -> _Host:
        """What is known about a host that another relay had until now. That one may have opened alerts."""
        lost_at, host = self._lost.pop(name, (now, _Host()))
        if now >= lost_at + REMEMBERED_SECONDS:
            return _Host()
        host.watch.could_not_close(KINDS)
        return host

    async def _check_all(self, due: list[str], found: Mapping[str, HostProgress], now: float) -> None:
        with HostFailures() as failures:
            checks = [
                asyncio.ensure_future(self._check_apart(failures, host, found.get(host, HostProgress()), now))
                for host in due
            ]
            try:
                await asyncio.gather(*checks)
            finally:
                # After an outage the others would wait for it in turn. What waits for the thread leaves it here, too.
                for check in checks:
                    check.cancel()
                await asyncio.gather(*checks, return_exceptions=True)

    def _is_due(self, host: _Host, found: HostProgress, now: float) -> bool:
        """False if there are new fates, or if nothing is outstanding and the last check was a short time ago."""
        before, host.progress = host.progress, found
        if not host.watch.is_calm or host.looked_at == float("-inf"):
            return True
        if found.outstanding and (before is None or before.fates == found.fates):
            return True
        return now >= host.looked_at + IDLE_LOOK_SECONDS

    def troubles(self) -> dict[str, str]:
        """What was wrong with each host's writer at the last check."""
        return {f"writer {name}": host.trouble for name, host in sorted(self._hosts.items())}

    def hindrances(self) -> dict[str, str]:
        """The same, but only what makes the role not ready."""
        return {
            f"writer {name}": host.trouble if host.hinders_roles else "" for name, host in sorted(self._hosts.items())
        }

    async def _check_apart(self, failures: HostFailures, host: str, found: HostProgress, now: float) -> None:
        with failures.of(host):
            await self._check(failures, host, found, now)

    async def _check(self, failures: HostFailures, name: str, found: HostProgress, now: float) -> None:
        """An action that fails holds up no other: a writer is started though its alert is locked."""
        host = self._hosts[name]
        host.looked_at = now
        async with self._asking:
            seen = await self._ask(name)
            host.trouble = "Temporal does not answer" if isinstance(seen, TemporalAway) else trouble(seen)
            host.hinders_roles = isinstance(seen, TemporalAway) or seen.hinders_roles
            silence = await self._silence(name, seen)
            for action in host.watch.look(seen, now, waiting=found.outstanding, silence=silence):
                with failures.of(name):
                    await self._act(name, action)

    async def _silence(self, host: str, seen: WriterHealth | TemporalAway) -> str:
        """That no worker is at work, by the workers' own reports: Temporal remembers a frozen one as polling."""
        if isinstance(seen, TemporalAway) or seen.state not in {WriterState.FAILING, WriterState.NO_WORKER}:
            return ""
        with suppress(StoreError, DBAPIError):
            silence = worker_silence(await self.transactions.look(lambda connection: read_workers(connection, host)))
            return f"{silence.why} {silence.step}" if silence else ""
        return ""

    async def _ask(self, host: str) -> WriterHealth | TemporalAway:
        try:
            return await self.writers.health(host)
        except TemporalDoesNotAnswer as error:
            return TemporalAway(str(error))

    async def _act(self, host: str, action: Action) -> None:
        if isinstance(action, StartWriter):
            await self._start(host)
        elif isinstance(action, NudgeWriter):
            await self._nudge(host)
        elif isinstance(action, OpenAlert):
            kind, message = action.kind, action.message
            # Here and below a conflict is not retried: the next check does the same, and the other hosts would wait.
            await self.transactions.run(
                lambda connection: raise_alert(connection, host, kind, "critical", message), attempts=1
            )
        else:
            await self._close(host, action)

    async def _close(self, host: str, over: CloseAlerts) -> None:
        try:
            await self.transactions.run(lambda connection: _close_alerts(connection, host, over), attempts=1)
        except Exception:
            self._hosts[host].watch.could_not_close(over.kinds)
            raise

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


def _close_alerts(connection: Connection, host: str, over: CloseAlerts) -> None:
    for kind in over.kinds:
        close_alert(connection, host, kind)
