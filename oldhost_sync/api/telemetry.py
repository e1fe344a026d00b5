"""What a request leaves behind: figures for Prometheus, and spans for who traces.

**The metrics** are requests by route and status, their duration, the database's circuit breaker. Routes are named by
their template, not by their path: a path holds ids, so there would be a metric for each unit. What is no route (also:
another method on a known path) has one name, so nobody makes the page larger by what they ask for. Rendering takes some
milliseconds, in which the event loop would answer no write. So it is done in another thread, and once a second at most,
however many ask.

**The spans** are those of a request by a known caller: its own, and `accept` in the trace of each new change. With a
`traceparent` the request's span is part of the caller's trace (recorded if the caller records it); otherwise it begins
a new trace, for the same share of requests as of changes. It is named by its route's template, too. The two spans are
linked in both directions.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from functools import partial

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import Scope

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import CALLER_KEY
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.store.intake.change_recorder import RecordedChange
from oldhost_sync.telemetry import show_role
from oldhost_sync.traces.change_spans import LINKS_MAX, accept_span, new_span_id, whole
from oldhost_sync.traces.span import ChangeTrace, Kind, Link, Span, SpanAddress, read_traceparent
from oldhost_sync.traces.tracer import Tracer

# -------------------------------------------------------------------------------------------------------------- metrics

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

    def watch_connections(self, open_now: Callable[[], float]) -> None:
        self._open.set_function(open_now)

    def connection_refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

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


# ---------------------------------------------------------------------------------------------------------------- spans

_ROUTES = "/api/"
_SERVER_ERROR = 500


@dataclass(slots=True)
class _Noted:
    """The changes in the answer to one request, by id; `new`: those that the request recorded."""

    refs: dict[int, ChangeRef] = field(default_factory=dict)
    new: set[int] = field(default_factory=set)


_noted: ContextVar[_Noted | None] = ContextVar("noted_changes", default=None)


def note(change: RecordedChange) -> None:
    """Note a change that the current request answers with. Does nothing while traces are off."""
    noted = _noted.get()
    if noted is not None and change.ref is not None:
        noted.refs[change.ref.change_id] = change.ref
        if not change.duplicate:
            noted.new.add(change.ref.change_id)


@dataclass(frozen=True, slots=True)
class RequestUnderWay:
    begin_ns: int
    noted: _Noted
    token: Token[_Noted | None]


@dataclass(frozen=True, slots=True)
class RequestTracer:
    """Records the spans of requests for `host`."""

    tracer: Tracer
    host: str

    def begin(self) -> RequestUnderWay:
        noted = _Noted()
        return RequestUnderWay(self.tracer.now_ns(), noted, _noted.set(noted))

    def end(self, request: RequestUnderWay, scope: Scope, status: int) -> None:
        _noted.reset(request.token)
        if CALLER_KEY in scope and scope["path"].startswith(_ROUTES):
            self.tracer.record(partial(self._spans, request, scope, status, self.tracer.now_ns()))

    def _spans(self, request: RequestUnderWay, scope: Scope, status: int, end_ns: int) -> Iterator[Span]:
        traces = (
            (ref, self.tracer.trace_of(self.host, ref.change_id, ref.accepted_at_ms))
            for ref in request.noted.refs.values()
        )
        traced = [(ref, trace) for ref, trace in traces if trace is not None]
        own = self._request_span(request, scope, status, end_ns, [trace for _, trace in traced])
        if own is not None:
            yield own
        link = None if own is None else Link(own.address, "request")
        for ref, trace in traced:
            if ref.change_id in request.noted.new:
                yield accept_span(self.host, ref, trace, request.begin_ns, end_ns, link)

    def _request_span(
        self, request: RequestUnderWay, scope: Scope, status: int, end_ns: int, traces: list[ChangeTrace]
    ) -> Span | None:
        given = [value for name, value in scope["headers"] if name == b"traceparent"]
        caller = read_traceparent(given[0]) if len(given) == 1 else None
        if caller is None:
            own = ChangeTrace(secrets.randbits(128) or 1, new_span_id())
            if not own.is_sampled(self.tracer.ratio):
                return None
            address, parent = whole(own), None
        else:
            if not caller.sampled:
                return None
            address, parent = SpanAddress(caller.span.trace_id, new_span_id()), caller.span
        method, route = named(scope)
        return Span(
            f"{method} {route}",
            address,
            parent,
            request.begin_ns,
            end_ns,
            {"http.request.method": method, "http.route": route, "http.response.status_code": status},
            Kind.SERVER,
            links=tuple(Link(whole(trace), "change") for trace in traces[:LINKS_MAX]),
            error=str(status) if status >= _SERVER_ERROR or not status else "",
        )
