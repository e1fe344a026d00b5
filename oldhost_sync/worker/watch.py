"""Workers watch each other, and whether relays serve their hosts.

Each worker watches the next one, and tells the writers when that one's process has ended. Otherwise a writer learns it
from Temporal's timeouts, after 2 to 6 s, and its workflow tasks are offered to the dead process for a second. It is
only a hint: without it, or if it is wrong, the timeouts and the ledger's epoch do what they always do. The workers form
a ring by their names, so that each one is watched, by one connection each.

Relays tell of a missing worker, and only workers can tell of a missing relay, since they post alerts, too.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.probes.health import running_during
from oldhost_sync.store.alerts import keep_condition
from oldhost_sync.store.engine import create_engine, require_primary
from oldhost_sync.store.errors import StoreError, is_passing
from oldhost_sync.store.outbox.outstanding_changes import unserved_hosts
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.store.workers import WorkerPresence, hold, is_free
from oldhost_sync.temporal.writer_health import RPC_TIMEOUT
from workflows.messages import session_task_queue, workflow_id

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How long one wait for the next worker's lock lasts; then the workers are read again. One that has just started is
# watched after that time.
WAIT_SECONDS = 2.0
# A living worker that lost its connection takes its lock again within this time.
TAKEN_AGAIN_SECONDS = 0.3
# Hosts told at the same time.
TOLD_AT_A_TIME = 5
# Longer than a relay's lease lasts without it, and than a single relay needs to be replaced.
RELAYS_POLL_SECONDS = 20.0
UNSERVED = "no-relay"
_UNSERVED = Fact("changes wait, and no relay serves this host: start one, or name the host in the relays' settings")


def in_ring(own: str, others: Iterable[str]) -> list[str]:
    """The other names in the order in which they follow `own` in a ring."""
    return sorted(others, key=lambda name: (name < own, name))


@asynccontextmanager
async def others_watched(database_url: str, client: Client, presence: WorkerPresence) -> AsyncIterator[None]:
    """Hold this worker's lock and watch the next worker, until the body ends."""
    engine, left = create_engine(database_url, pool_size=2, autocommit=True), threading.Event()
    threads = ThreadPoolExecutor(2, thread_name_prefix="worker-watch")
    watch = WorkerWatch(engine, client, presence, threads)
    try:
        async with running_during(partial(watch.hold, left)), running_during(watch.watch):
            yield
    finally:
        left.set()
        threads.shutdown(wait=False)
        engine.dispose()


@dataclass(eq=False)
class WorkerWatch:
    """The watch of one worker. `engine`: in autocommit mode. `threads`: two, since both waits are in MariaDB."""

    engine: Engine
    client: Client
    presence: WorkerPresence
    threads: ThreadPoolExecutor
    seen: dict[str, None] = field(default_factory=dict)  # who was seen to hold its lock, over this connection

    async def hold(self, left: threading.Event) -> None:
        """Hold this worker's lock until `left` is set."""
        await self._do(lambda: hold(self.engine, self.presence.name, left))

    async def watch(self) -> None:
        """Watch until cancelled. Raises errors that do not pass by themselves, as a refused statement."""
        while True:
            try:
                await self._watch_over(await self._do(self.engine.connect))
            except (StoreError, DBAPIError, PoolTimeout) as error:
                if not is_passing(error):
                    raise
                logger.debug("can't watch the other workers: %s", error)
            await asyncio.sleep(WAIT_SECONDS)

    async def _watch_over(self, connection: Connection) -> None:
        """Watch over this connection as long as it lasts; the next one may lead to a server that has other locks."""
        try:
            while True:
                await self._watch_next(connection)
        finally:
            self.seen.clear()
            self.threads.submit(connection.close)  # a wait may still run; a leaving worker does not stay for it

    async def _watch_next(self, connection: Connection) -> None:
        """Watch the first worker in the ring that was seen to hold its lock, for a while.

        That another one does not hold it says nothing: its lock may be on another server.
        """
        await self._do(lambda: self._silent(connection))
        name = next(iter(in_ring(self.presence.name, self.seen)), None)
        if name is None:
            await asyncio.sleep(WAIT_SECONDS)
        elif await self._do(lambda: is_free(connection, name, WAIT_SECONDS)):
            await self._find_ended(connection)

    async def _find_ended(self, connection: Connection) -> None:
        """Tell of those that have ended, unless they take their lock again at once."""
        silent = await self._do(lambda: self._silent(connection))
        await self._each(dict.fromkeys(host for hosts in silent.values() for host in hosts), self._forget_sticky)
        await asyncio.sleep(TAKEN_AGAIN_SECONDS)
        still = await self._do(lambda: self._silent(connection))
        for name in [name for name in silent if name in still]:
            del self.seen[name]
            await self._tell(name, await self._do(partial(self.presence.taken_by, connection, name)))

    def _silent(self, connection: Connection) -> dict[str, list[str]]:
        """Those that were seen to hold their lock and do not now, with the hosts that both serve.

        One that said that it leaves is without hosts: it has moved the writers' states itself.
        """
        require_primary(connection)
        others = self.presence.others(connection)
        holders = {name: None for name, other in others.items() if other.holds_lock}
        self.seen |= holders
        silent = [name for name in self.seen if name not in holders and is_free(connection, name, 0)]
        return {name: others[name].hosts if name in others else [] for name in silent}

    async def _tell(self, name: str, hosts: Iterable[str]) -> None:
        """Tell the writers of `hosts`, whose session the worker may hold."""
        told = list(hosts)
        if not told:
            return
        logger.info("worker %s seems to have ended: the writers of %s are told", name, ", ".join(told))
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


@dataclass(eq=False)
class RelayWatch:
    """Reports hosts of this worker that no relay serves. `clock`: seconds, monotonic."""

    engine: Engine
    hosts: Sequence[str]
    clock: Callable[[], float] = time.monotonic
    _conditions: Conditions = field(default_factory=Conditions)

    async def watch(self) -> None:
        """Look repeatedly, until cancelled. Raises errors that nobody foresaw."""
        while True:
            try:
                await asyncio.to_thread(self.poll)
            except StoreError as error:
                logger.debug("can't look whether relays are at work: %s", error)
            await asyncio.sleep(RELAYS_POLL_SECONDS)

    def poll(self) -> None:
        """Look once. Raises the store's errors."""
        now = self.clock()
        unserved = run_in_transaction(self.engine, unserved_hosts, attempts=1)
        for host in self.hosts:
            self._conditions.found(host, UNSERVED, _UNSERVED if host in unserved else None, now)
        steps = self._conditions.due(now)
        if not steps:
            return

        def keep(connection: Connection) -> list[str]:
            return [keep_condition(connection, step) for step in steps]

        news = run_in_transaction(self.engine, keep, attempts=1)
        for step, line in zip(steps, news, strict=True):
            self._conditions.written(step, now)
            if line:
                logger.warning(line)
