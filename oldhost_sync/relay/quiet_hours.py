"""Pauses a host's writer for its quiet hours, as an operator would: with an end, and in the audit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from sqlalchemy.engine import Connection

from oldhost_sync.policy.rules.operator_act import OperatorAct
from oldhost_sync.policy.rules.quiet_hours import QuietHours, Window, window_at
from oldhost_sync.relay.duty import HostFailures
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.audit import current_pause, list_acts
from oldhost_sync.temporal.writer_client import Cause, UpdateRefused, WriterUnavailable

QUIET_POLL_SECONDS = 1.0
NAME = "quiet hours"
# Each is an act of a person, within one window.
PAUSES_READ = 100


class HostWriter(Protocol):
    """Raises WriterError."""

    async def update(self, name: str, act: OperatorAct) -> Any: ...


class Starts(Protocol):
    """Raises TemporalDoesNotAnswer."""

    async def start(self, host: str) -> None: ...


@dataclass(eq=False)
class QuietHoursKeeper:
    """A duty (see `duty`) for all hosts of `hours`. A window is paused for once: an operator who resumes ends it for
    that day. Another pause is left as it is; if it ends before the window, ours follows.
    """

    name = "pausing for quiet hours"
    host = "all hosts"
    pause_s = QUIET_POLL_SECONDS

    transactions: Transactions
    leaderships: Mapping[str, Leadership]
    writers: Mapping[str, HostWriter]
    starts: Starts
    hours: Mapping[str, Sequence[QuietHours]]
    wall_clock: Callable[[], float] = time.time

    async def run_once(self, now: float) -> float:
        at = datetime.fromtimestamp(self.wall_clock(), UTC)
        with HostFailures() as failures:
            for host, hours in self.hours.items():
                window = window_at(hours, at)
                if window is not None and self.leaderships[host].held(now):
                    with failures.of(host):
                        await self._keep(host, window, at)
        return QUIET_POLL_SECONDS

    async def _keep(self, host: str, window: Window, at: datetime) -> None:
        reason = f"until {window.end:%Y-%m-%d %H:%M} UTC"
        if await self.transactions.poll(partial(_is_settled, host=host, reason=reason)):
            return
        rest = math.ceil((window.end - at) / timedelta(seconds=1))
        act = OperatorAct(operator=NAME, reason=reason, for_seconds=rest)
        try:
            await self.writers[host].update("pause", act)
        except UpdateRefused:
            pass  # another pause came first, or it still reads what waits: the next round looks again
        except WriterUnavailable as away:
            if away.cause is not Cause.NO_WRITER:
                raise
            await self.starts.start(host)  # one that begins later would send until it is told


def _is_settled(connection: Connection, host: str, reason: str) -> bool:
    """Whether there is a pause now, or was one for this window."""
    if current_pause(connection, host) is not None:
        return True
    acts = list_acts(connection, host, limit=PAUSES_READ, action="pause")
    return any((act.operator, act.reason) == (NAME, reason) for act in acts)
