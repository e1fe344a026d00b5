"""Each worker watches the next one, and tells the writers when that one's process has ended.

Otherwise a writer learns it from Temporal's timeouts, after 2 to 6 s, and its workflow tasks are offered to the dead
process for a second. It is only a hint: without it, or if it is wrong, the timeouts and the ledger's epoch do what they
always do. The workers form a ring by their names, so that each one is watched, by one connection each.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from oldhost_sync.policy.release import KNOWS_ENDED_WORKERS
from oldhost_sync.role_health import running_during
from oldhost_sync.store.demotion import require_primary
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.worker_locks import hold, is_free
from oldhost_sync.store.worker_presence import WorkerPresence
from oldhost_sync.writer_health import RPC_TIMEOUT
from workflows.messages import session_task_queue, workflow_id

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How long one wait for the next worker's lock lasts (below the limit for a statement); then the workers are read again.
WAIT_SECONDS = 5.0
# A living worker that lost its connection takes its lock again within this time.
TAKEN_AGAIN_SECONDS = 0.3
# Hosts told at the same time.
TOLD_AT_A_TIME = 5


def in_ring(own: str, others: Iterable[str]) -> list[str]:
    """The other names in the order in which they follow `own` in a ring."""
    return sorted(others, key=lambda name: (name < own, name))


@asynccontextmanager
async def others_watched(
    database_url: str, client: Client, presence: WorkerPresence, begins_with: Callable[[str], int]
) -> AsyncIterator[None]:
    """Hold this worker's lock and watch the next worker, until the body ends."""
    engine, left = create_engine(database_url, pool_size=2, autocommit=True), threading.Event()
    threads = ThreadPoolExecutor(2, thread_name_prefix="worker-watch")
    watch = WorkerWatch(engine, client, presence, begins_with, threads)
    try:
        async with running_during(partial(watch.hold, left)), running_during(watch.watch):
            yield
    finally:
        left.set()
        threads.shutdown(wait=False)
        engine.dispose()


@dataclass(eq=False)
class WorkerWatch:
    """The watch of one worker. `engine`: in autocommit mode. `begins_with`: the release that a new run of a host's
    writer keeps (`ReleaseWatch`). `threads`: two, since both waits are in MariaDB.
    """

    engine: Engine
    client: Client
    presence: WorkerPresence
    begins_with: Callable[[str], int]
    threads: ThreadPoolExecutor
    watched: str = ""  # it was seen to hold its lock

    async def hold(self, left: threading.Event) -> None:
        """Hold this worker's lock until `left` is set."""
        await self._do(lambda: hold(self.engine, self.presence.name, left))

    async def watch(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                await self._watch_over(await self._do(self.engine.connect))
            except (StoreError, DBAPIError, RPCError) as error:
                logger.debug("can't watch the other workers: %s", error)
            await asyncio.sleep(WAIT_SECONDS)

    async def _watch_over(self, connection: Connection) -> None:
        """Watch over this connection as long as it lasts; the next one may lead to a server that has other locks."""
        self.watched = ""
        try:
            while True:
                await self._watch_next(connection)
        finally:
            self.threads.submit(connection.close)  # a wait may still run; a leaving worker does not stay for it

    async def _watch_next(self, connection: Connection) -> None:
        """Watch the first worker in the ring that holds its lock, for a while."""
        await self._do(lambda: require_primary(connection))
        others = await self._do(lambda: self.presence.others(connection))
        self.watched = await self._do(lambda: self._first_holder(connection, in_ring(self.presence.name, others)))
        if not self.watched:
            await asyncio.sleep(WAIT_SECONDS)
        elif await self._do(lambda: is_free(connection, self.watched, WAIT_SECONDS)):
            await self._each(others[self.watched], self._forget_sticky)
            await asyncio.sleep(TAKEN_AGAIN_SECONDS)
            self.watched = ""
            for name, hosts in (await self._do(lambda: self._ended(connection, others))).items():
                await self._tell(name, hosts)

    def _first_holder(self, connection: Connection, names: Iterable[str]) -> str:
        """The first that holds its lock; empty if none does. A worker of an older release does not, nor one whose
        database has just started: that it does not hold the lock now does not mean that it has ended.

        The worker that was watched so far counts as a holder, or an end between two looks would be missed.
        """
        return next((name for name in names if name == self.watched or not is_free(connection, name, 0)), "")

    def _ended(self, connection: Connection, names: Iterable[str]) -> dict[str, list[str]]:
        """Those that hold no lock although locks can be seen here, with the hosts whose session each may hold."""
        return {name: self.presence.taken_by(connection, name) for name in names if is_free(connection, name, 0)}

    async def _tell(self, name: str, hosts: Iterable[str]) -> None:
        """Tell the writers of `hosts`, whose session the worker may hold."""
        told = [host for host in hosts if self.begins_with(host) >= KNOWS_ENDED_WORKERS]
        if not told:
            return
        logger.info("worker %s has ended; the sessions of %s move to another", name, ", ".join(told))
        task_queue = session_task_queue(name)

        async def tell(host: str) -> None:
            handle = self.client.get_workflow_handle(workflow_id(host))
            await handle.signal("worker_ended", task_queue, rpc_timeout=RPC_TIMEOUT)

        await self._each(told, tell)

    async def _forget_sticky(self, host: str) -> None:
        """Offer the next task of the host's writer to any worker, not first to the one that has its state."""
        request = ResetStickyTaskQueueRequest(
            namespace=self.client.namespace, execution=WorkflowExecution(workflow_id=workflow_id(host))
        )
        await self.client.workflow_service.reset_sticky_task_queue(request, timeout=RPC_TIMEOUT)

    async def _each(self, hosts: Iterable[str], act: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """Act on several hosts at a time. One that fails (perhaps no writer runs) does not stop the others."""
        asking = asyncio.Semaphore(TOLD_AT_A_TIME)

        async def one(host: str) -> None:
            async with asking:
                try:
                    await act(host)
                except RPCError as error:
                    logger.debug("the writer of %s was not reached: %s", host, error)

        await asyncio.gather(*(one(host) for host in hosts))

    async def _do(self, blocking: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, blocking)
