"""The relay's database access: short transactions on a few threads.

Each kind of duty has threads of its own, and the engine has a connection for each thread: a duty that waits for a lock
delays no other kind. Hosts are idle most of the time, and a query costs as much for a hundred hosts as for one: so the
hosts' duties share a query while its result is fresh (`SharedPoll`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy.limits import TRANSACTION_ATTEMPTS_MAX
from oldhost_sync.store.transactions import poll, run_in_transaction

T = TypeVar("T")


class Transactions:
    """Runs functions of a connection, each in one transaction, on `threads` threads.

    `autocommit_engine`: for polls, the queries that only check whether there is anything to do. Without it each poll is
    a transaction, too.
    """

    def __init__(
        self, engine: Engine, threads: int = 1, name: str = "relay", *, autocommit_engine: Engine | None = None
    ) -> None:
        self._engine = engine
        self._autocommit_engine = autocommit_engine
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"{name}-database")

    async def run(self, fn: Callable[[Connection], T], *, attempts: int = TRANSACTION_ATTEMPTS_MAX) -> T:
        """Run `fn` in a transaction, which is retried as a whole on a conflict. Raises StoreError or DBAPIError."""
        loop = asyncio.get_running_loop()
        run = partial(run_in_transaction, self._engine, fn, attempts=attempts)
        return await loop.run_in_executor(self._threads, run)

    async def poll(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn`, which must work if each statement commits by itself. Raises StoreError or DBAPIError."""
        if self._autocommit_engine is None:
            return await self.run(fn)
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, partial(poll, self._autocommit_engine, fn)
        )


class SharedPoll(Generic[T]):
    """One query for all hosts of a process. A result is shared while it is younger than `fresh_s`.

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
