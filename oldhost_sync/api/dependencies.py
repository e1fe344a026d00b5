"""The dependencies of the routes, created once when the process starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import Tokens
from oldhost_sync.api.database import Database
from oldhost_sync.api.expected_arrival import ExpectedArrivals
from oldhost_sync.api.fate_streams import FateStreams
from oldhost_sync.api.planner_process import PlannerProcess
from oldhost_sync.api.quotas import QuotaKeeper, RefusedSignIns
from oldhost_sync.api.refused_writes import LastRefusal, RefusedWrites
from oldhost_sync.api.telemetry import RequestMetrics
from oldhost_sync.api.writer_link import WriterLink
from oldhost_sync.api.writes import GroupCommit
from oldhost_sync.policy.rules.quiet_hours import QuietHours
from oldhost_sync.policy.rules.quota import Quotas
from oldhost_sync.policy.tuning import WriterPolicy
from oldhost_sync.settings import name_in_environment
from oldhost_sync.store.read import change_feed, host_condition
from oldhost_sync.traces.tracer import Tracer


class BookCount:
    """The books, counted at a limited rate: counting is slow if many changes are kept, and many clients may ask at
    once. All requests within a few seconds share one `host_condition.read_status`.
    """

    def __init__(self, host: str, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._database = database
        self._clock = clock
        self._seen: tuple[float, dict[str, Any]] | None = None
        self._looking = asyncio.Lock()

    async def read(self) -> dict[str, Any]:
        """Raises Problem or StoreError."""
        async with self._looking:
            now = self._clock()
            if self._seen is None or now >= self._seen[0]:
                books = await self._database.run(lambda connection: host_condition.read_status(connection, self._host))
                ended = self._clock()
                pause = max(http_limits.BOOKS_SECONDS, (ended - now) / http_limits.BOOKS_SHARE_MAX)
                self._seen = (ended + pause, books)
            return self._seen[1]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """`clock`: seconds of a monotonic clock, for short-lived caches. `policies`: by host, its writer's policy from the
    settings; `quiet_hours`: the same. `called`: what people set for a host's field.

    `quotas` holds each token to the limits of `of_each_token`. The dependencies of all hosts of a process share the
    database's connections, the tracer and the last refusal.
    """

    host: str
    tokens: Tokens
    database: Database
    writer: WriterLink
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    refused: RefusedSignIns = field(default_factory=RefusedSignIns)
    clock: Callable[[], float] = time.monotonic
    policies: Callable[[str], WriterPolicy] = lambda _: WriterPolicy()
    quiet_hours: Callable[[str], Sequence[QuietHours]] = lambda _: ()
    called: Callable[[str, str], str] = lambda _, field: name_in_environment(field)
    tracer: Tracer | None = None
    of_each_token: Quotas = field(default_factory=Quotas)
    last_refusal: LastRefusal = field(default_factory=LastRefusal)
    # The tokens and the writer of each host that this process serves, SYNC_HOST's first; empty: it serves only `host`.
    tokens_by_host: Mapping[str, Tokens] = field(default_factory=dict)
    writers_by_host: Mapping[str, WriterLink] = field(default_factory=dict)
    books: BookCount = field(init=False)
    commits: GroupCommit = field(init=False)
    expected: ExpectedArrivals = field(init=False)
    streams: FateStreams = field(init=False)
    planner: PlannerProcess = field(init=False)
    quotas: QuotaKeeper = field(init=False)
    refused_writes: RefusedWrites = field(init=False)

    def __post_init__(self) -> None:
        separate = self.database.separate
        object.__setattr__(self, "quotas", QuotaKeeper(self.host, self.of_each_token, separate, self.clock))
        object.__setattr__(self, "refused_writes", RefusedWrites(self.host, separate, self.clock))
        object.__setattr__(self, "commits", GroupCommit(self.database))
        expected = ExpectedArrivals(
            self.writer.query, lambda: self.policy.promises, self.clock, partial(self.quiet_hours, self.host)
        )
        object.__setattr__(self, "expected", expected)
        newest = partial(separate.run, partial(change_feed.newest_number, host=self.host))
        object.__setattr__(self, "streams", FateStreams(newest, self.clock))
        object.__setattr__(self, "books", BookCount(self.host, self.database, self.clock))
        object.__setattr__(self, "planner", PlannerProcess(self.host, self.database, self.policy))

    @property
    def policy(self) -> WriterPolicy:
        """The host's."""
        return self.policies(self.host)

    def hosts_for(self, token_name: str) -> Sequence[str]:
        """The hosts that this process serves and that the token of this name is for."""
        return [host for host, tokens in self.tokens_by_host.items() if tokens.knows(token_name)] or [self.host]

    async def close(self) -> None:
        """Close what all hosts share: the database's connections and the tracer."""
        self.database.close()
        if self.tracer:
            await asyncio.to_thread(self.tracer.close)
