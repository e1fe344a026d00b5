"""The relay's access to the writers: signals, starts and health checks, over one client for all hosts.

The relay starts even while Temporal is away: the client connects when it is first needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from temporalio.client import Client
from temporalio.service import RPCError

from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.relay.transactions import SharedPoll
from oldhost_sync.temporal import client as temporal
from oldhost_sync.temporal.task_queue import QueueState, TaskSights
from oldhost_sync.temporal.writer_health import WriterHealth, is_no_namespace, queue_state, writer_health
from workflows.messages import WriterPolicy

T = TypeVar("T")

CALL_SECONDS_MAX = 10.0
# All hosts' writers share a task queue, so one query for its state serves all of them for this long.
POLLED_FRESH_SECONDS = 3.0


class TemporalDoesNotAnswer(Exception):  # noqa: N818 - says what happened
    """Temporal's or the network's fault; retry later."""


class Writers(Protocol):
    """What the watchdog asks of Temporal. Each raises TemporalDoesNotAnswer."""

    async def start(self, host: str) -> None: ...
    async def nudge(self, host: str) -> None: ...
    async def health(self, host: str) -> WriterHealth: ...


class TemporalWriters:
    """The :class:`Writers` of a Temporal server. `policy`: each host's."""

    def __init__(
        self, policy: Callable[[str], WriterPolicy], connect: Callable[[], Awaitable[Client]] = temporal.connect
    ) -> None:
        self._policy = policy
        self._client = temporal.SharedClient(connect, CALL_SECONDS_MAX)
        self._sights = TaskSights()
        self._queues = SharedPoll[QueueState](POLLED_FRESH_SECONDS)

    async def connected(self) -> Client:
        """The client for all hosts. Raises what connecting raises."""
        return await self._client.get()

    async def signal(self, host: str, refs: list[ChangeRef]) -> None:
        """Send refs to the writer. Raises the SDK's errors; when it returns, they are durable at Temporal."""
        await temporal.signal_enqueue(await self._client.get(), host, self._policy(host), refs)

    async def start(self, host: str) -> None:
        await self._asked(lambda client: temporal.start_writer(client, host, self._policy(host)))

    async def nudge(self, host: str) -> None:
        await self._asked(lambda client: temporal.signal_enqueue(client, host, self._policy(host), []))

    async def health(self, host: str) -> WriterHealth:
        return await self._asked(lambda client: writer_health(client, host, queue=self._queue, sights=self._sights))

    async def _asked(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                return await ask(await self._client.get())
        except (RPCError, RuntimeError, TimeoutError) as error:
            raise TemporalDoesNotAnswer(_reason(error)) from error

    async def _queue(self) -> QueueState:
        return await self._queues.poll(time.monotonic(), self._ask_queue)

    async def _ask_queue(self) -> QueueState:
        return await queue_state(await self._client.get())


def _reason(error: Exception) -> str:
    if isinstance(error, RPCError) and is_no_namespace(error):
        return "it has no namespace of this name"
    if isinstance(error, RPCError):
        return error.status.name.lower().replace("_", " ")
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)
