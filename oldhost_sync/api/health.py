"""Liveness, readiness and metrics of the process.

Liveness and readiness reveal nothing, so they need no token; metrics do (role viewer or ops). Ready means that the
database takes writes: without Temporal changes are still accepted.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Response
from sqlalchemy.engine import Connection

from oldhost_sync.api.auth import READERS, WATCHERS, access, adder
from oldhost_sync.api.dependencies import Parts
from oldhost_sync.api.examples import METRICS
from oldhost_sync.api.schemas import Health
from oldhost_sync.store.views import readiness

# Probes share a good result for so many seconds; a bad one is shared only by those that wait for it.
READY_SECONDS = 2.0


class HealthRoutes:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._fresh_until = float("-inf")
        self._look: asyncio.Task[None] | None = None

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "health")

        async def document() -> dict[str, Any]:
            return app.openapi()

        add("GET", "/healthz", self.alive, Health, "Is the process alive?", (), (405, 500))
        add("GET", "/readyz", self.ready, Health, "Can it take changes?", (), (405, 500, 503))
        page = {"200": {"content": {"text/plain": {"schema": {"type": "string"}, "example": METRICS}}}}
        app.add_api_route(
            "/metrics",
            self.metrics,
            methods=["GET"],
            response_class=Response,
            summary="Figures for Prometheus",
            operation_id="health_metrics",
            tags=["health"],
            **access(WATCHERS, errors=(405,), responses=page),
        )
        app.add_api_route("/openapi.json", document, methods=["GET"], include_in_schema=False, **access(READERS))

    async def alive(self) -> Health:
        return Health(status="ok")

    async def ready(self) -> Health:
        """A Problem when no change can be recorded now."""
        now = self._parts.clock()
        if self._look is None or (self._look.done() and (self._look.exception() or now >= self._fresh_until)):
            self._fresh_until = now + READY_SECONDS
            self._look = asyncio.create_task(self._parts.database.run(_look))
        await asyncio.shield(self._look)
        return Health(status="ok")

    async def metrics(self) -> Response:
        return Response(self._parts.metrics.text(), media_type=self._parts.metrics.content_type)


def _look(connection: Connection) -> None:
    """Raises when the database is away, takes no write, or its tables are missing."""
    readiness.check_reads(connection)
    readiness.check_writes(connection)
