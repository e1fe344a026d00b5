"""The first promise at real speed: 300 changes a second over the HTTP API, while OldHost takes its real 400 ms.

The compressed peak can't show it, since there each second has the work of thirty. The load is an open loop: a change is
submitted when it is due, whatever became of the earlier ones, so that a slow answer delays no other change. What the
generator itself is late with is measured apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from oldhost_sync.demo.applications import Streams, ask, key_of, request_of
from oldhost_sync.planner import Arrival, Scenario, arrivals

PER_SECOND = 300
SECONDS = 10.0
# More than ever wait for an answer while the promise is kept: 200 ms at 300 a second are 60.
CONNECTIONS_MAX = 150


@dataclass
class Burst:
    """Seconds of each change: `late` from when it was due until the generator came to it, which is the generator's own
    delay; `took` from then to its answer. `failed`: not accepted.
    """

    took: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    lasted: float = 0.0


def burst_of(scenario: Scenario, after: int, seconds: float = SECONDS) -> list[Arrival]:
    """The scenario's mix on its units, at 300 a second; numbered after the scenario's own changes."""
    count = round(PER_SECOND * seconds)
    made = arrivals(replace(scenario, changes=count, duration_s=seconds, bursts=0, ban_at_s=None))
    return [
        replace(change, number=after + number, at_ms=1000 * number // PER_SECOND)
        for number, change in enumerate(made, 1)
    ]


class BurstClient:
    """Submits each change when it is due, on a kept-alive connection that no other request uses then."""

    def __init__(self, api: str, token: str) -> None:
        parts = urlsplit(api)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._named = parts.netloc
        self._token = token
        self._idle: list[Streams] = []
        self._places = asyncio.Semaphore(CONNECTIONS_MAX)

    async def make(self, changes: Sequence[Arrival]) -> Burst:
        burst, loop = Burst(), asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as tasks:
            for change in changes:
                due = began + change.at_ms / 1000
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                burst.late.append(max(0.0, loop.time() - due))
                tasks.create_task(self._submit(change, loop.time(), burst))
        burst.lasted = loop.time() - began
        for _, writer in self._idle:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in self._idle), return_exceptions=True)
        return burst

    async def _submit(self, change: Arrival, begun: float, burst: Burst) -> None:
        """Waiting for a connection counts: all are busy only if answers are late."""
        async with self._places:
            try:
                streams = self._idle.pop() if self._idle else await asyncio.open_connection(*self._address)
                status, answer = await ask(streams, request_of(change, self._token, self._named))
            except (OSError, asyncio.IncompleteReadError, ValueError) as error:
                status, answer = 0, str(error)
            else:
                self._idle.append(streams)
        burst.took.append(asyncio.get_running_loop().time() - begun)
        if status != 202:
            burst.failed.append(f"{key_of(change)}: {status} {answer[:200]}")
