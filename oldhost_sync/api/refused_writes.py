"""Writes that the database did not take. Their senders are asked to repeat them; whoever can mend it gets a line in
the log when it begins and one when it is over, an alert if it lasts, and `/readyz` for a moment.

A database may answer every probe and still refuse writes: when its disk is full (it still updates rows in place), when
a table can't grow, or when a transaction keeps a row locked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sqlalchemy.exc import DBAPIError

from oldhost_sync.api import http_limits
from oldhost_sync.api.database import Database
from oldhost_sync.api.problems import Problem
from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.store.alerts import keep_condition
from oldhost_sync.store.errors import StoreError

logger = logging.getLogger("oldhost_sync.api")

# The problems that mean it, by their kind; others are the caller's fault, or Temporal's.
KINDS = frozenset({"database-away", "database-unsuitable", "commit-uncertain", "contended", "too-busy", "internal"})
ALERT = "writes-refused"


@dataclass(slots=True)
class Spell:
    """From the first refused write until writes are taken again and none was refused for a while. `recorded_since`:
    whether a write was recorded after the last refused one, at `last`.
    """

    last: float = 0.0
    refused: int = 0
    recorded: int = 0
    recorded_since: bool = False


class RefusedWrites:
    """For one host and this process. `clock`: seconds, monotonic."""

    def __init__(self, host: str, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._database = database
        self._clock = clock
        self._spell: Spell | None = None
        self._conditions = Conditions()

    def note(self, problem: Problem) -> None:
        """One write was answered with this problem."""
        if problem.kind not in KINDS:
            return
        self._end_if_over()
        # An incident's text is in the log, and not the same for each.
        why = "an unexpected error; the API's log has it." if problem.kind == "internal" else problem.content["detail"]
        if self._spell is None:
            self._spell = Spell()
            logger.warning("a write of %s was refused: %s", self._host, why)
        spell = self._spell
        spell.last, spell.recorded_since = self._clock(), False
        spell.refused += 1
        # Fewer are a bad request, or a locked row, among many writes.
        if spell.refused / (spell.refused + spell.recorded) >= http_limits.REFUSED_WRITES_SHARE:
            message = f"The API could not record changes. The last answer was: {why}"
            self._conditions.found(
                self._host, ALERT, Fact(message, count=spell.refused, afterwards=True), self._clock()
            )

    def recorded(self) -> None:
        """One write was taken."""
        if self._spell is not None:
            self._spell.recorded += 1
            self._spell.recorded_since = True

    def _end_if_over(self) -> None:
        spell, now = self._spell, self._clock()
        if spell is None or not spell.recorded_since or now - spell.last <= http_limits.REFUSED_WRITES_PAUSE_SECONDS:
            return
        logger.info("writes of %s are taken again; %d were refused", self._host, spell.refused)
        self._spell = None
        self._conditions.found(self._host, ALERT, None, now)

    async def keep(self) -> None:
        """Keep the alert up to date, until cancelled."""
        while True:
            await asyncio.sleep(http_limits.REFUSED_WRITES_ALERT_SECONDS)
            await self.keep_alert()

    async def keep_alert(self) -> None:
        """Open or close the alert, if that is due; what the database can't store now, later."""
        self._end_if_over()
        now = self._clock()
        for step in self._conditions.due(now):
            try:
                await self._database.run(partial(keep_condition, step=step))
            except (Problem, StoreError) as error:
                logger.debug("the alert about refused writes can't be stored yet (%s)", type(error).__name__)
                return
            except DBAPIError:
                logger.exception("the alert about refused writes of %s can't be stored", self._host)
                return
            self._conditions.written(step, now)


# Those that the next write of any entity would meet, too: not a locked row, nor a process with too much to do.
_MET_BY_THE_NEXT = frozenset({"database-away", "commit-uncertain"})


@dataclass(slots=True)
class LastRefusal:
    """The last refused write, as long as none has been taken since: then the process is not ready. It counts for a
    moment only: without changes nobody knows whether the next one would be refused. Of all hosts of this process, since
    they share the database. `now`: seconds, monotonic.
    """

    problem: Problem | None = None
    at: float = 0.0

    def note(self, problem: Problem, now: float) -> None:
        if problem.kind in _MET_BY_THE_NEXT:
            self.problem, self.at = problem, now

    def recorded(self) -> None:
        """A write was taken."""
        self.problem = None

    def standing(self, now: float) -> Problem | None:
        return self.problem if now - self.at <= http_limits.READY_REFUSED_SECONDS else None
