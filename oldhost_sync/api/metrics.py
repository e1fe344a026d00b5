"""The API's metrics for Prometheus: requests by route and status, their duration, the database's circuit breaker.

Routes are named by their template, not by their path: a path holds ids, so there would be a metric for each unit. What
is no route (also: another method on a known path) has one name, so nobody makes the page larger by what they ask for.

Rendering takes some milliseconds, in which the event loop would answer no write. So it is done in another thread, and
once a second at most, however many ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import Scope

from oldhost_sync.api import http_limits
from oldhost_sync.api.connection_count import ConnectionCount
from oldhost_sync.telemetry import show_role

# Around the target (50 ms) and the promise (200 ms).
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class RequestMetrics:
    """One registry per application, so that two in one process (tests) don't conflict."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._rendering = asyncio.Lock()
        self._page, self._page_until = b"", float("-inf")
        show_role(registry, "api", time.time)
        name, labels = "oldhost_sync_api_{}".format, ["method", "route"]
        self._requests = Counter(name("requests"), "Requests answered.", [*labels, "status"], registry=registry)
        self._seconds = Histogram(
            name("request_seconds"), "Time to answer.", labels, buckets=_SECONDS, registry=registry
        )
        away = "1 while the database is known to be away."
        self._away = Gauge(name("database_away"), away, registry=registry)
        self._waiting = Gauge(name("database_waiting"), "Requests waiting for a thread.", registry=registry)
        self._open = Gauge(name("connections"), "Open connections.", registry=registry)
        help_text = "Connections refused, by the limit that was reached: address or server; idle: one that gave way."
        self._refused = Counter(name("refused_connections"), help_text, ["reason"], registry=registry)

    def watch_database(self, away: Callable[[], float], waiting: Callable[[], float]) -> None:
        self._away.set_function(away)
        self._waiting.set_function(waiting)

    def count_connections(self, at_most: int, of_one: int) -> ConnectionCount:
        """A counter for the server's connections, whose value is exported."""
        count = ConnectionCount(at_most, of_one, lambda full: self._refused.labels(full).inc())
        self._open.set_function(lambda: float(count.open))
        return count

    def observe(self, scope: Scope, status: int, seconds: float) -> None:
        method, route = named(scope)
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    async def text(self) -> bytes:
        """The page, as it was a second ago at most."""
        async with self._rendering:
            if time.monotonic() >= self._page_until:
                self._page = await asyncio.to_thread(generate_latest, self.registry)
                self._page_until = time.monotonic() + http_limits.METRICS_SECONDS
            return self._page


OTHER = "other"


def named(scope: Scope) -> tuple[str, str]:
    """A request's method and the template of its route; "other" for both if there is no such route."""
    route = scope.get("route")
    if scope["method"] not in (getattr(route, "methods", None) or ()):
        return OTHER, OTHER
    return scope["method"], getattr(route, "path", OTHER)
