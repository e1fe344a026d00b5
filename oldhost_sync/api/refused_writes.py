"""Writes that the database did not take. Who sent them was told to repeat them; this tells who can mend it: a line in
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

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.api import limits
from oldhost_sync.api.database import Database
from oldhost_sync.api.problems import Problem
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import StoreError

logger = logging.getLogger("oldhost_sync.api")

# The problems that mean it, by their kind; others are the caller's fault, or Temporal's.
KINDS = frozenset({"database-away", "database-unsuitable", "commit-uncertain", "contended", "too-busy", "internal"})
ALERT = "writes-refused"


@dataclass(slots=True)
class Spell:
    """From the first refused write until writes are taken again and none was refused for a while.

    `recorded_since`: whether a write was recorded after the last refused one. `untold`: refused, and not in the alert.
    `has_alert`: it was raised, so it must be closed, whatever share was refused in the end.
    """

    began: float
    last: float = 0.0
    why: str = ""
    refused: int = 0
    recorded: int = 0
    recorded_since: bool = False
    untold: int = 0
    has_alert: bool = False

    @property
    def is_worth_an_alert(self) -> bool:
        """It lasts, and is more than one bad request, or one locked row, among many writes."""
        share = self.refused / (self.refused + self.recorded)
        return self.last - self.began >= limits.REFUSED_WRITES_SECONDS and share >= limits.REFUSED_WRITES_SHARE


class RefusedWrites:
    """For one host and this process. `clock`: seconds, monotonic."""

    def __init__(self, host: str, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._database = database
        self._clock = clock
        self._spell: Spell | None = None
        # One that is over and whose alert is still to be closed.
        self._over: Spell | None = None

    def note(self, problem: Problem) -> None:
        """One write was answered with this problem."""
        if problem.kind not in KINDS:
            return
        self._end_if_over()
        now = self._clock()
        # An incident's text is in the log, and not the same for each.
        why = "an unexpected error; the API's log has it." if problem.kind == "internal" else problem.content["detail"]
        if self._spell is None:
            self._spell = Spell(began=now)
            logger.warning("a write of %s was refused: %s", self._host, why)
        spell = self._spell
        spell.last, spell.why, spell.recorded_since = now, str(why), False
        spell.refused += 1
        spell.untold += 1

    def recorded(self) -> None:
        """One write was taken."""
        if self._spell is not None:
            self._spell.recorded += 1
            self._spell.recorded_since = True

    def _end_if_over(self) -> None:
        spell = self._spell
        if (
            spell is None
            or not spell.recorded_since
            or self._clock() - spell.last <= limits.REFUSED_WRITES_PAUSE_SECONDS
        ):
            return
        logger.info("writes of %s are taken again; %d were refused", self._host, spell.refused)
        self._spell = None
        if spell.has_alert or spell.is_worth_an_alert:
            self._over = spell

    async def keep(self) -> None:
        """Tell what is to be told, until cancelled."""
        while True:
            await asyncio.sleep(limits.REFUSED_WRITES_TOLD_SECONDS)
            await self.tell()

    async def tell(self) -> None:
        """Raise the alert while a spell lasts, and close it after that; what the database can't store now, later."""
        self._end_if_over()
        if self._over is not None and await self._told(self._over, is_over=True):
            self._over = None
        if self._spell is not None and self._spell.is_worth_an_alert and self._spell.untold:
            await self._told(self._spell, is_over=False)

    async def _told(self, spell: Spell, *, is_over: bool) -> bool:
        untold = spell.untold
        try:
            await self._database.run(partial(self._write, spell=spell, untold=untold, is_over=is_over))
        except (Problem, StoreError) as error:
            logger.debug("the alert about refused writes can't be stored yet (%s)", type(error).__name__)
            return False
        except DBAPIError:
            logger.exception("the alert about refused writes of %s can't be stored", self._host)
            return False
        spell.untold -= untold
        spell.has_alert = True
        return True

    def _write(self, connection: Connection, spell: Spell, untold: int, is_over: bool) -> None:
        if untold:
            message = f"The API could not record changes. The last answer was: {spell.why}"
            raise_alert(connection, self._host, ALERT, "critical", message, count=untold, adds=True)
        if is_over:
            close_alert(connection, self._host, ALERT)


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
        return self.problem if now - self.at <= limits.READY_REFUSED_SECONDS else None
