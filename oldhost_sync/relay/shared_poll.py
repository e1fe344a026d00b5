"""One look at the outbox for all hosts that a process relays, shared by their relays while it is young.

A deployment's hosts are idle most of the time; each asking for itself ten times a second would cost more than all they
send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from oldhost_sync.store.outbox.relay_queue import Unrelayed

Seen = dict[str, Unrelayed]


class SharedPoll:
    """A look is shared while it is younger than `fresh_s`.

    Who asks while a look is under way waits for it, and for its failure: a database that is away is waited for once,
    not by one host after the other.
    """

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._polled_at = float("-inf")
        self._under_way: asyncio.Task[Seen] | None = None

    async def poll(self, now: float, ask: Callable[[], Coroutine[Any, Any, Seen]]) -> Seen:
        """What the look shows that is under way or fresh, or else a new one by `ask`, with whatever that raises."""
        if self._under_way is None or (self._under_way.done() and now >= self._polled_at + self._fresh_s):
            self._polled_at = now
            self._under_way = asyncio.create_task(ask())
        return await asyncio.shield(self._under_way)
