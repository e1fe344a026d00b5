"""Several hosts, one line each: the state of each is that of its banner, from its writer and the database.

All writers are asked at the same time, each with the timeout of a look, so a list takes no longer than one page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from sqlalchemy.engine import Connection

from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.situation import Situation, judge
from oldhost_sync.api.situation_reader import Observation, Query, observed
from oldhost_sync.api.writer_link import WriterLink
from oldhost_sync.store.views.host_condition import HostCondition, read_condition

Conditions = Mapping[str, HostCondition]


@dataclass(frozen=True, slots=True)
class HostLine:
    """`state` and `why`: the first word and sentence of the host's banner."""

    host: str
    state: str
    why: str
    oldest_waiting_at: datetime | None
    open_alerts: int


class HostList:
    """`writers`: by host. `read` gives the condition of each of some hosts; its errors are raised."""

    def __init__(
        self, writers: Mapping[str, WriterLink], read: Callable[[Sequence[str]], Awaitable[Conditions]]
    ) -> None:
        self._writers = {
            host: Query(partial(writer.query, "status"), "the writer does not answer in time")
            for host, writer in writers.items()
        }
        self._read = read

    async def lines(self, hosts: Sequence[str]) -> list[HostLine]:
        """One line for each of `hosts`, in their order."""
        conditions, *writers = await asyncio.gather(self._read(hosts), *(self._writers[host].see() for host in hosts))
        at = datetime.now(UTC)
        return [
            _line(host, judge(observed(at, writer, Observation(conditions[host]))), conditions[host])
            for host, writer in zip(hosts, writers, strict=True)
        ]


def list_of(dependencies: Dependencies) -> HostList:
    """Of the hosts that this process serves."""
    writers = {dependencies.host: dependencies.writer, **dependencies.writers_by_host}

    async def read(hosts: Sequence[str]) -> Conditions:
        return await dependencies.database.run(partial(read_conditions, hosts=hosts))

    return HostList(writers, read)


def read_conditions(connection: Connection, hosts: Sequence[str]) -> Conditions:
    return {host: read_condition(connection, host) for host in hosts}


def _line(host: str, situation: Situation, condition: HostCondition) -> HostLine:
    return HostLine(host, situation.word, situation.why, condition.oldest_waiting_at, condition.open_alerts)
