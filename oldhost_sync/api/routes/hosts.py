"""One process for many hosts: one application for each host, all with the same routes and database connections.

`/api/hosts/{host}/changes` is `/api/changes` of that host, and `/console/hosts/{host}` is its console. A path without a
host belongs to SYNC_HOST. Each route knows only its own host, so no route can mix up hosts. Only the list of hosts has
them all, one line each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from pydantic import Field
from sqlalchemy.engine import Connection
from starlette.types import ASGIApp, Receive, Scope, Send

from oldhost_sync.api.access import READERS, adder, caller_of
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.requests import AnswerBody
from oldhost_sync.api.situation import Word, judge
from oldhost_sync.api.situation_reader import Observation, Query, observed
from oldhost_sync.api.writer_link import WriterLink
from oldhost_sync.policy.tuning import Promises
from oldhost_sync.store.read.host_condition import HostCondition, read_condition
from oldhost_sync.store.record import RECORD, described

# The host's name follows one of these prefixes and HOSTS in a path.
_PREFIXES = ("/api", "/console")
HOSTS = "hosts"


class HostApps:
    """A middleware in front of the application of `home` (SYNC_HOST) and those of the `others`."""

    def __init__(self, app: ASGIApp, *, home: str, others: Mapping[str, FastAPI]) -> None:
        self._home = app
        self._served = {home: app} | dict(others)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")  # a lifespan has none
        app = self._home
        while (named := host_in(path)) is not None and named[0] in self._served:
            app, path = self._served[named[0]], named[1]
        if path != scope.get("path", ""):
            scope = dict(scope) | {"path": path, "raw_path": path.encode()}
        await app(scope, receive, send)


def host_in(path: str) -> tuple[str, str] | None:
    """The host that a path names, and the path without it; None when it names none.

    The result may name a host again: a link to one host's pages, followed from another host. The last one counts.
    """
    for prefix in _PREFIXES:
        start = f"{prefix}/{HOSTS}/"
        if path.startswith(start):
            host, _, rest = path.removeprefix(start).partition("/")
            return host, f"{prefix}/{rest}" if rest else prefix
    return None


Conditions = Mapping[str, HostCondition]


@dataclass(frozen=True, slots=True)
class ServedHost:
    """One host, as GET /api/hosts/{host}/situation judges it."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "host": "oldhost",
        "state": "SENDING",
        "why": "",
        "oldest_waiting_at": "2026-05-01T12:00:00Z",
        "open_alerts": 0,
    }

    host: str
    state: str = field(metadata=described(", ".join(Word)))
    why: str = field(metadata=described("What keeps the writer from sending, or what it does"))
    oldest_waiting_at: datetime | None = field(metadata=described("When its oldest waiting change was accepted"))
    open_alerts: int


class HostList:
    """The state of each host is that of its banner, from its writer and the database. All writers are asked at the same
    time, each with the timeout of a poll, so a list takes no longer than one page.

    `writers`: by host. `read` gives the condition of each of some hosts; its errors are raised. `promises`, `called`:
    of each host.
    """

    def __init__(
        self,
        writers: Mapping[str, WriterLink],
        read: Callable[[Sequence[str]], Awaitable[Conditions]],
        promises: Callable[[str], Promises],
        called: Callable[[str, str], str],
    ) -> None:
        self._promises, self._called = promises, called
        self._writers = {
            host: Query(partial(writer.query, "status"), "the writer does not answer in time")
            for host, writer in writers.items()
        }
        self._read = read

    async def lines(self, hosts: Sequence[str]) -> list[ServedHost]:
        """One line for each of `hosts`, in their order."""
        conditions, *writers = await asyncio.gather(self._read(hosts), *(self._writers[host].see() for host in hosts))
        at = datetime.now(UTC)
        return [self._line(host, at, writer, conditions[host]) for host, writer in zip(hosts, writers, strict=True)]

    def _line(
        self, host: str, at: datetime, writer: Observation[dict[str, Any]], condition: HostCondition
    ) -> ServedHost:
        called = partial(self._called, host)
        found = judge(observed(at, writer, Observation(condition), self._promises(host), called))
        return ServedHost(host, found.word, found.why, condition.oldest_waiting_at, condition.open_alerts)


def list_of(dependencies: Dependencies) -> HostList:
    """Of the hosts that this process serves."""
    writers = {dependencies.host: dependencies.writer, **dependencies.writers_by_host}

    async def read(hosts: Sequence[str]) -> Conditions:
        return await dependencies.database.run(partial(read_conditions, hosts=hosts))

    return HostList(writers, read, lambda host: dependencies.policies(host).promises, dependencies.called)


def read_conditions(connection: Connection, hosts: Sequence[str]) -> Conditions:
    return {host: read_condition(connection, host) for host in hosts}


class ServedHosts(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"hosts": [ServedHost.EXAMPLE]}

    hosts: list[ServedHost] = Field(description="The hosts that the caller's token is for; SYNC_HOST first")


class HostRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._list = list_of(dependencies)

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "hosts")
        summary = "The hosts that are served, and the state of each"
        add("GET", f"/api/{HOSTS}", self.list, ServedHosts, summary, READERS, (405,))

    async def list(self, request: Request) -> ServedHosts:
        """All other paths also exist for each host: `/api/hosts/{host}/changes` is `/api/changes` of that host."""
        names = self._dependencies.hosts_for(caller_of(request).name)
        return ServedHosts(hosts=await self._list.lines(names))
