"""One query for all hosts of a process, shared by their duties while it is fresh.

Hosts are idle most of the time, and a query costs as much for a hundred hosts as for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedPoll(Generic[T]):
    """A result is shared while it is younger than `fresh_s`.

    Callers wait for the running query and share its failure: an absent database costs one timeout, not one for each
    host.
    """

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._polled_at = float("-inf")
        self._under_way: asyncio.Task[T] | None = None

    async def poll(self, now: float, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the running or still fresh query, or of a new one by `ask`; raises what that raises."""
        if self._under_way is None or (self._under_way.done() and now >= self._polled_at + self._fresh_s):
            self._polled_at = now
            self._under_way = asyncio.create_task(ask())
        return await asyncio.shield(self._under_way)
