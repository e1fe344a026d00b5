"""The spans of a request by a known caller: its own span, and `accept` in the trace of each new change.

With a `traceparent` the request's span is part of the caller's trace (recorded if the caller records it); otherwise it
begins a new trace, for the same share of requests as of changes. It is named by its route's template, because a path
holds ids and keys. The two spans are linked in both directions.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from functools import partial

from starlette.types import Scope

from oldhost_sync.api.access.rights import CALLER_KEY
from oldhost_sync.api.metrics import named
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.store.intake.change_recorder import RecordedChange
from oldhost_sync.traces.change_spans import LINKS_MAX, accept_span, new_span_id, whole
from oldhost_sync.traces.span import ChangeTrace, Kind, Link, Span, SpanAddress, read_traceparent
from oldhost_sync.traces.tracer import Tracer

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
