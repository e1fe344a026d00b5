"""Liveness, readiness and metrics of the process.

Liveness and readiness reveal nothing, so they need no token; metrics need one (role viewer or ops). Ready means that
the database takes writes, has this release's schema and knows the hosts, and has not just refused a change; Temporal is
not needed to accept changes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from typing import Any, ClassVar

from fastapi import FastAPI, Response
from sqlalchemy.engine import Connection

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import WATCHERS, access, adder, public
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.error_answers import as_response
from oldhost_sync.api.problems import Problem, database_away, database_unsuitable, of_store_error
from oldhost_sync.api.requests import AnswerBody
from oldhost_sync.store.engine import check_reads, check_writes, require
from oldhost_sync.store.errors import CommitUncertain, SchemaTooOld, StoreError, UnknownHost

METRICS_EXAMPLE = (
    "# HELP oldhost_sync_api_requests_total Requests answered.\n"
    "# TYPE oldhost_sync_api_requests_total counter\n"
    'oldhost_sync_api_requests_total{method="POST",route="/api/changes",status="202"} 4.0\n'
)


class Health(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"status": "ok"}

    status: str


class ReadinessCheck:
    """Whether the database takes writes, for all probes: one check at a time, whose result is shared for a second. One
    that does not end in time is a result, too: a server that hangs counts as away until it answers.

    `check` raises a Problem or StoreError when no change can be recorded. `clock`: seconds, monotonic.
    """

    def __init__(self, check: Callable[[], Awaitable[None]], clock: Callable[[], float]) -> None:
        self._check = check
        self._clock = clock
        self._task: asyncio.Task[Problem | None] | None = None
        self._began = self._checked_at = float("-inf")
        self._result: Problem | None = None

    async def see(self) -> Problem | None:
        """Returns what is wrong, or None, after READY_POLL_SECONDS_MAX at the latest."""
        if self._task is None:
            if self._clock() < self._checked_at + http_limits.READY_SECONDS:
                return self._result
            self._began = self._clock()
            self._task = asyncio.create_task(self._find())
        left = self._began + http_limits.READY_POLL_SECONDS_MAX - self._clock()
        task = self._task
        if left > 0 and not task.done():
            await asyncio.wait({task}, timeout=left)
        return task.result() if task.done() else database_away("it does not answer")

    async def _find(self) -> Problem | None:
        try:
            self._result = await self._trouble()
            self._checked_at = self._clock()
        finally:
            self._task = None
        return self._result

    async def _trouble(self) -> Problem | None:
        try:
            await self._check()
        except Problem as problem:
            return problem
        except StoreError as error:
            # A check writes nothing whose outcome could be uncertain.
            return database_away(str(error)) if isinstance(error, CommitUncertain) else of_store_error(error)
        return None


logger = logging.getLogger(__name__)


class HealthRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        hosts = tuple(dependencies.tokens_by_host) or (dependencies.host,)
        self._readiness = ReadinessCheck(
            lambda: dependencies.database.separate.run(partial(_check, hosts=hosts)), dependencies.clock
        )

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "health")

        @cache
        def rendered() -> bytes:
            return json.dumps(app.openapi(), separators=(",", ":"), ensure_ascii=False).encode()

        async def document() -> Response:
            return Response(await asyncio.to_thread(rendered), media_type="application/json")

        add("GET", "/healthz", self.alive, Health, "Is the process alive?", (), (405, 500))
        add("GET", "/readyz", self.ready, Health, "Can it take changes?", (), (405, 500, 503))
        page = {"200": {"content": {"text/plain": {"schema": {"type": "string"}, "example": METRICS_EXAMPLE}}}}
        app.add_api_route(
            "/metrics",
            self.metrics,
            methods=["GET"],
            response_class=Response,
            summary="Metrics for Prometheus",
            operation_id="health_metrics",
            tags=["health"],
            **access(WATCHERS, errors=(405,), responses=page),
        )
        hidden: dict[str, Any] = {"include_in_schema": False, "response_class": Response}
        app.add_api_route("/openapi.json", document, methods=["GET"], **hidden, **public())

    async def alive(self) -> Health:
        return Health(status="ok")

    async def ready(self) -> Any:
        """503 if no change can be recorded now. The database is checked at most once a second. A change that it refused
        counts, too, for 15 s or until it takes one.
        """
        of_writes = self._dependencies.last_refusal.standing(self._dependencies.clock())
        problem = await self._readiness.see() or of_writes
        # Not raised: the problem is shared, and every raise would add to its traceback.
        return Health(status="ok") if problem is None else as_response(problem)

    async def metrics(self) -> Response:
        return Response(await self._dependencies.metrics.text(), media_type=self._dependencies.metrics.content_type)


def _check(connection: Connection, hosts: Sequence[str]) -> None:
    """Raises when the database is away, takes no writes, lacks tables, or does not know a host."""
    check_reads(connection)
    check_writes(connection, "api")
    try:
        require(connection, hosts)
    except (SchemaTooOld, UnknownHost) as error:
        logger.warning("no change can be recorded: %s", error)
        # This route is public, so the answer does not reveal which hosts exist.
        raise database_unsuitable("its schema is too old, or it does not know a host; see the API's log") from None
