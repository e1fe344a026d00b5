"""Whether the database takes writes, for all probes: one check at a time, whose result is shared for a second.

However many probes arrive, the database is checked at most once a second. A check that does not end in time is a
result, too: a server that hangs counts as away until it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from oldhost_sync.api import limits
from oldhost_sync.api.problems import Problem, database_away, of_store_error
from oldhost_sync.store.errors import CommitUncertain, StoreError


class ReadinessLook:
    """`look` raises a Problem or StoreError when no change can be recorded. `clock`: seconds, monotonic."""

    def __init__(self, look: Callable[[], Awaitable[None]], clock: Callable[[], float]) -> None:
        self._look = look
        self._clock = clock
        self._task: asyncio.Task[Problem | None] | None = None
        self._began = self._found_at = float("-inf")
        self._found: Problem | None = None

    async def see(self) -> Problem | None:
        """Returns what is wrong, or None, after READY_LOOK_SECONDS_MAX at the latest."""
        if self._task is None:
            if self._clock() < self._found_at + limits.READY_SECONDS:
                return self._found
            self._began = self._clock()
            self._task = asyncio.create_task(self._find())
        left = self._began + limits.READY_LOOK_SECONDS_MAX - self._clock()
        task = self._task
        if left > 0 and not task.done():
            await asyncio.wait({task}, timeout=left)
        return task.result() if task.done() else database_away("it does not answer")

    async def _find(self) -> Problem | None:
        try:
            self._found = await self._trouble()
            self._found_at = self._clock()
        finally:
            self._task = None
        return self._found

    async def _trouble(self) -> Problem | None:
        try:
            await self._look()
        except Problem as problem:
            return problem
        except StoreError as error:
            # A check writes nothing whose outcome could be uncertain.
            return database_away(str(error)) if isinstance(error, CommitUncertain) else of_store_error(error)
        return None
