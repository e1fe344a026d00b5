"""The connection from the event loop to MariaDB: a few threads, a bounded queue, and a circuit breaker that fails fast.

Once a connection was refused or lost, the database is *known away*: requests are answered with 503 at once, and one
request per probe interval is let through as a probe. If a server hangs instead of refusing, requests time out in the
queue, and then it is known away, too. A request that already has a thread waits for a bounded time; then the thread
continues, and the outcome of its transaction is uncertain. All this state belongs to this process only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import cached_property, partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from oldhost_sync.api import http_limits
from oldhost_sync.api.bounded_waits import Circuit, Places, is_silent
from oldhost_sync.api.problems import database_away, of_store_error, too_busy
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import (
    NOT_MIGRATED_ERRORS,
    ONE_STATEMENT_ERRORS,
    CommitUncertain,
    DatabaseUnavailable,
    StatementRefused,
    TransactionContended,
    error_code,
)
from oldhost_sync.store.intake.change_recorder import NO_WAIT
from oldhost_sync.store.transactions import run_in_transaction

T = TypeVar("T")


def connect_for_api(database_url: str, connections: int = http_limits.database_connections(hosts=1)) -> Engine:
    """An engine with a connection for each thread, and shorter timeouts than elsewhere because people wait."""
    return create_engine(
        database_url,
        pool_size=connections,
        statement_seconds=http_limits.DATABASE_STATEMENT_SECONDS,
        lock_wait_seconds=http_limits.DATABASE_LOCK_SECONDS,
    )


class Database:
    """Runs functions on its own threads: each in one transaction (`run`), or with several transactions (`work`)."""

    def __init__(
        self,
        engine: Engine,
        *,
        threads: int = http_limits.DATABASE_THREADS,
        hosts: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        all_threads = threads + hosts + http_limits.LOCK_WAITS_AT_ONCE
        self._threads = ThreadPoolExecutor(all_threads, thread_name_prefix="api-database")
        self._free = Places(threads, http_limits.DATABASE_QUEUE_MAX)
        self._lock_waits = Places(http_limits.LOCK_WAITS_AT_ONCE, http_limits.DATABASE_QUEUE_MAX)
        self._turns: WeakValueDictionary[tuple[str, ...], Places] = WeakValueDictionary()
        self._batches = Places(http_limits.BATCHES_AT_ONCE, http_limits.BATCHES_WAITING_MAX)
        self._waiting: list[Callable[[], int]] = [
            lambda: sum(places.waiting for places in (self._free, self._lock_waits, *self._turns.values()))
        ]
        self._clock = clock
        self._last_end = clock()
        self.circuit = Circuit(http_limits.DATABASE_PROBE_SECONDS)

    async def run(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` in its own transaction; a conflict repeats the whole transaction. Raises Problem or StoreError."""
        return await self.work(_in_transaction(fn))

    async def run_for_entity(self, fn: Callable[..., T], *entity: str) -> T:
        """Run `fn(connection, lock_wait=…)`, which locks the entity's row. If another transaction holds it, wait on a
        thread that no other request needs; of an entity only one request at a time waits there.
        """
        at_once = partial(fn, lock_wait=NO_WAIT)
        try:
            return await self.work(lambda engine: run_in_transaction(engine, at_once, attempts=1))
        except TransactionContended:
            places = await self._places_behind_locks(entity)
        return await self._call(_in_transaction(partial(fn, lock_wait="")), *places)

    async def _places_behind_locks(self, entity: tuple[str, ...]) -> list[Places]:
        turn = self._turns.setdefault(entity, Places(1, http_limits.DATABASE_QUEUE_MAX))
        taken: list[Places] = []
        try:
            async with asyncio.timeout(http_limits.DATABASE_QUEUE_SECONDS_MAX):
                for places in (turn, self._lock_waits):
                    await places.take(http_limits.DATABASE_QUEUE_SECONDS_MAX)
                    taken.append(places)
        except BaseException as error:
            for places in taken:
                places.release()
            if isinstance(error, TimeoutError):
                raise TransactionContended("other changes wait for locked rows, too") from None
            raise
        return taken

    def turn_of_a_batch(self) -> AbstractAsyncContextManager[None]:
        """Batches queue here, so that single requests always have threads."""
        return self._batches.turn(http_limits.BATCHES_QUEUE_SECONDS_MAX)

    async def work(self, fn: Callable[[Engine], T], *, one_at_a_time: bool = False) -> T:
        """Run `fn`, which begins its own transactions, on a thread. Raises Problem or StoreError.

        `one_at_a_time`: only for a caller, one for each host, that begins the next call after the last has ended or was
        given up, which opens the circuit. There is an additional thread for each host for it.
        """
        if not self.circuit.admits(self._clock()):
            raise self.circuit.problem()
        if one_at_a_time:
            return await self._call(fn)
        await self._take_thread()
        return await self._call(fn, self._free)

    async def _call(self, fn: Callable[[Engine], T], *places: Places) -> T:
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, fn, self._engine)
        future.add_done_callback(self._ended)
        for place in places:
            # The thread is free when its function has ended, which may be after its request gave up.
            future.add_done_callback(partial(_release, place))
        if await is_silent(future, http_limits.DATABASE_ANSWER_SECONDS_MAX):
            self.notice_silence()
            raise CommitUncertain("the database does not answer")
        try:
            return future.result()
        except DBAPIError as error:
            code = error_code(error)
            if code in NOT_MIGRATED_ERRORS:
                why = f"it is not set up ({NOT_MIGRATED_ERRORS[code]}); run `oldhost-sync migrate`"
                raise database_away(why) from None
            raise

    @cached_property
    def separate(self) -> Database:
        """The same database on separate connections, for work that must not wait for requests or delay them."""
        url = self._engine.url.render_as_string(hide_password=False)
        threads = http_limits.DATABASE_THREADS_SEPARATE
        return Database(connect_for_api(url, threads), threads=threads, hosts=0, clock=self._clock)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a thread or for the next transaction of the group commit."""
        return sum(count() for count in self._waiting)

    def count_waiting(self, count: Callable[[], int]) -> None:
        """Add a function that counts further requests that wait for the database."""
        self._waiting.append(count)

    def close(self) -> None:
        if "separate" in vars(self):
            self.separate.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._engine.dispose()

    async def _take_thread(self) -> None:
        try:
            await self._free.take(http_limits.DATABASE_QUEUE_SECONDS_MAX)
        except TimeoutError:
            self.notice_silence()
            raise too_busy() from None

    def notice_silence(self) -> None:
        """Called when a request times out: the database is away unless it has answered other requests."""
        now = self._clock()
        if now - self._last_end >= http_limits.DATABASE_QUEUE_SECONDS_MAX:
            self.circuit.failed(now, partial(database_away, "it does not answer"))

    def _ended(self, future: asyncio.Future[Any]) -> None:
        now = self._last_end = self._clock()
        error = None if future.cancelled() else future.exception()
        if isinstance(error, DatabaseUnavailable | CommitUncertain) and not _is_of_one_statement(error):
            # Not the error itself: it holds on to all that its frames held.
            known = type(error) if isinstance(error, DatabaseUnavailable) else DatabaseUnavailable
            self.circuit.failed(now, partial(of_store_error, known(str(error))))
        else:
            self.circuit.succeeded()


def _release(places: Places, _ended: object) -> None:
    places.release()


def _in_transaction(fn: Callable[[Connection], T]) -> Callable[[Engine], T]:
    return lambda engine: run_in_transaction(engine, fn, attempts=http_limits.DATABASE_ATTEMPTS)


def _is_of_one_statement(error: BaseException) -> bool:
    code = None if error.__cause__ is None else error_code(error.__cause__)
    return isinstance(error, StatementRefused) or code in ONE_STATEMENT_ERRORS
