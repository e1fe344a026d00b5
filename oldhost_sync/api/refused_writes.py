"""Writes that the database did not take. Who sent them was told to repeat them; this tells who can mend it: a line in
the log when it begins and one when it is over, and an alert if it lasts.

A database may answer every probe and still refuse writes: when its disk is full, when a table can't grow, or when a
transaction keeps a row locked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.api import limits
from oldhost_sync.api.database import Database
from oldhost_sync.api.problems import Problem
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.errors import StoreError

logger = logging.getLogger("oldhost_sync.api")

# The problems that mean it, by their kind; others are the caller's fault, or Temporal's.
KINDS = frozenset({"database-away", "database-unsuitable", "commit-uncertain", "contended", "too-busy", "internal"})


class RefusedWrites:
    """For one host and this process. `clock`: seconds, monotonic.

    Refusals with pauses of at most REFUSED_WRITES_PAUSE_SECONDS are one spell.
    """

    def __init__(self, host: str, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._database = database
        self._clock = clock
        self._began = self._last = float("-inf")
        self._why = ""
        self._in_spell = self._untold = 0
        self._is_long = False

    def note(self, problem: Problem) -> None:
        """One write was answered with this problem."""
        if problem.kind not in KINDS:
            return
        self._end_if_over()
        now = self._clock()
        self._why = str(problem.content["detail"])
        if not self._in_spell:
            self._began = now
            logger.warning("a write of %s was refused: %s", self._host, self._why)
        self._last = now
        self._in_spell += 1
        self._untold += 1
        many = self._in_spell >= limits.REFUSED_WRITES_MIN
        self._is_long |= many and now - self._began >= limits.REFUSED_WRITES_SECONDS

    def _end_if_over(self) -> None:
        if not self._in_spell or self._clock() - self._last <= limits.REFUSED_WRITES_PAUSE_SECONDS:
            return
        logger.info("writes of %s are taken again; %d were refused", self._host, self._in_spell)
        self._in_spell = 0
        if self._is_long and self._untold:
            return  # it is told yet
        self._is_long, self._untold = False, 0

    async def keep(self) -> None:
        """Tell what is to be told, until cancelled."""
        while True:
            await asyncio.sleep(limits.REFUSED_WRITES_TOLD_SECONDS)
            await self.tell()

    async def tell(self) -> None:
        """Raise the alert if a spell is or was long; if the database can't store it, the next call tries again."""
        self._end_if_over()
        if not (self._is_long and self._untold):
            return
        count = self._untold
        try:
            await self._database.run(partial(self._raise, count=count))
        except (Problem, StoreError, DBAPIError) as error:
            logger.debug("the alert about refused writes can't be stored yet (%s)", type(error).__name__)
            return
        self._untold -= count
        self._is_long = bool(self._in_spell)

    def _raise(self, connection: Connection, count: int) -> None:
        message = f"The API could not record changes. The last answer was: {self._why}"
        raise_alert(connection, self._host, "writes-refused", "critical", message, count=count, adds=True)
