"""The spans of a change, each made by the process that took the step.

`accept` the API, from the request to its answer · `relay` the relay, from accepted to acknowledged by Temporal ·
`wait` the writer's part, from relayed to sent: debounce, turns, bans · `operation` the worker, each time that it was on
the wire · `change` the whole, when its fate is known. `wait` and `change` are made from what the database has recorded,
so they also cover the steps of a process that died; the others are made while they happen.

Only names and numbers: never a payload, an idempotency key, or a text of OldHost.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Protocol

from oldhost_sync.oldhost.shared_connection import Exchange
from oldhost_sync.policy.changes import ChangeRef, Outcome
from oldhost_sync.store.read.change_feed import NamedChange, TracedFate
from oldhost_sync.traces.span import ChangeTrace, Kind, Link, Moment, Span, SpanAddress
from oldhost_sync.traces.tracer import Tracer

# Tracing backends keep about a hundred links of a span; a superseded change names its successor in any case.
LINKS_MAX = 100
_FAILED = frozenset({Outcome.DEAD.value, "REFUSED"})
_MS, _US, _S = 1_000_000, 1_000, 1_000_000_000


class Described(Protocol):
    """What names and describes a change: a ref, or an operation."""

    @property
    def change_id(self) -> int: ...
    @property
    def priority_class(self) -> str: ...
    @property
    def entity_type(self) -> str: ...
    @property
    def entity_id(self) -> str: ...
    @property
    def event_type(self) -> str: ...


def about(host: str, change: Described) -> dict[str, str | int]:
    """The attributes that every span has of its change."""
    return {
        "sync.host": host,
        "sync.change_id": change.change_id,
        "sync.priority_class": str(change.priority_class),
        "sync.entity_type": change.entity_type,
        "sync.entity_id": change.entity_id,
        "sync.event_type": change.event_type,
    }


def whole(trace: ChangeTrace) -> SpanAddress:
    """The span of the whole change."""
    return SpanAddress(trace.trace_id, trace.span_id)


def new_span_id() -> int:
    return random.getrandbits(64) or 1


def accept_span(
    host: str, ref: ChangeRef, trace: ChangeTrace, begin_ns: int, end_ns: int, request: Link | None
) -> Span:
    """`request`: a link to the request's own span, if it has one."""
    address = SpanAddress(trace.trace_id, new_span_id())
    links = () if request is None else (request,)
    return Span("accept", address, whole(trace), begin_ns, end_ns, about(host, ref), links=links)


def relay_span(host: str, ref: ChangeRef, trace: ChangeTrace, end_ns: int) -> Span:
    address = SpanAddress(trace.trace_id, trace.span_of("relay"))
    begin_ns = min(ref.accepted_at_ms * _MS, end_ns)
    return Span("relay", address, whole(trace), begin_ns, end_ns, about(host, ref), Kind.PRODUCER)


def operation_span(
    host: str, done: Exchange, trace: ChangeTrace, end_ns: int, activity: Mapping[str, str | None] | None = None
) -> Span:
    """`activity`: attributes to find the activity in Temporal's UI."""
    operation = done.operation
    attributes = {
        **about(host, operation),
        "sync.nonce": operation.nonce,
        "sync.epoch": done.epoch,
        "sync.sent_before": operation.sends,
        "sync.answer": done.answer,
        **{name: value for name, value in (activity or {}).items() if value is not None},
    }
    return Span(
        "operation",
        SpanAddress(trace.trace_id, new_span_id()),
        whole(trace),
        end_ns - round(max(0.0, done.seconds) * _S),
        end_ns,
        attributes,
        Kind.CLIENT,
        error="" if done.answer == "applied" else done.answer,
    )


def fate_spans(tracer: Tracer, host: str, fate: TracedFate) -> Iterator[Span]:
    """Of a change whose fate is known. One whose fate was known before, until an operator decided on it, has its whole
    already: then it is the span of that act.
    """
    trace = tracer.trace_of(host, fate.ref.change_id, fate.ref.accepted_at_ms)
    if trace is None:
        return
    yield _fate_span(tracer, host, fate, trace)
    wait = _wait_span(host, fate, trace)
    if wait is not None:
        yield wait


def _wait_span(host: str, fate: TracedFate, trace: ChangeTrace) -> Span | None:
    since_us = fate.relayed_us if fate.act is None else fate.act.at_us
    if since_us is None:
        return None
    earliest_us = 0 if fate.act is None else fate.act.at_us
    sent = [each.sent_us for each in fate.nonces if each.sent_us is not None and each.sent_us >= earliest_us]
    until_us = min([*sent, fate.decided_us])
    begin_us = min(since_us, until_us)
    address = SpanAddress(trace.trace_id, trace.span_of("wait", since_us))
    return Span("wait", address, whole(trace), begin_us * _US, until_us * _US, about(host, fate.ref))


def _fate_span(tracer: Tracer, host: str, fate: TracedFate, trace: ChangeTrace) -> Span:
    attributes = about(host, fate.ref) | {"sync.outcome": fate.outcome}
    if fate.nonce is not None:
        attributes["sync.nonce"] = fate.nonce
    if fate.successor is not None:
        attributes["sync.superseded_by"] = fate.successor.change_id
    name, address, parent, begin_us = "change", whole(trace), None, fate.accepted_us
    if fate.act is not None:
        name, parent, begin_us = fate.act.action, address, fate.act.at_us
        address = SpanAddress(trace.trace_id, trace.span_of(name, begin_us))
    return Span(
        name,
        address,
        parent,
        min(begin_us, fate.decided_us) * _US,
        fate.decided_us * _US,
        attributes,
        links=tuple(_links(tracer, host, fate)),
        moments=tuple(_moments(fate)),
        error=fate.outcome if fate.outcome in _FAILED else "",
    )


def _links(tracer: Tracer, host: str, fate: TracedFate) -> Iterator[Link]:
    """Links to the changes that it superseded, and to the one that superseded it."""

    def link(to: NamedChange, meaning: str) -> Iterator[Link]:
        trace = tracer.trace_of(host, to.change_id, to.accepted_at_ms)
        if trace is not None:
            yield Link(whole(trace), meaning)

    if fate.successor is not None:
        yield from link(fate.successor, "superseded by")
    for older in fate.superseded[:LINKS_MAX]:
        yield from link(older, "supersedes")


def _moments(fate: TracedFate) -> Iterator[Moment]:
    """What the ledger has recorded of each nonce that it held."""
    for each in fate.nonces:
        named: dict[str, str | int] = {"sync.nonce": each.nonce, "sync.epoch": each.epoch, "sync.sends": each.sends}
        if each.sent_us is not None:
            yield Moment("sent", each.sent_us * _US, named)
        if each.completed_us is not None:
            yield Moment("answered", each.completed_us * _US, named)
