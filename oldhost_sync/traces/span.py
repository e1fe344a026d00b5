"""A span as a value, what happened from when to when, and the trace that it belongs to: a change's, or a caller's.

It is complete when it is made. Times are nanoseconds since 1970, as in OpenTelemetry.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

Attributes = Mapping[str, str | int]
_VERSION_0 = re.compile(rb"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_RANGE = 2**64


class Kind(StrEnum):
    """Those of OpenTelemetry's kinds that we use."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class SpanAddress:
    """Where a span is found, in this trace or another."""

    trace_id: int
    span_id: int


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a span of another trace; `meaning`: how that span relates to this one."""

    to: SpanAddress
    meaning: str


@dataclass(frozen=True, slots=True)
class Moment:
    """An event within a span, at one moment."""

    name: str
    at_ns: int
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """`parent` None: it is the root of its trace. `error`: a word for what went wrong; empty if nothing did."""

    name: str
    address: SpanAddress
    parent: SpanAddress | None
    begin_ns: int
    end_ns: int
    attributes: Attributes
    kind: Kind = Kind.INTERNAL
    links: tuple[Link, ...] = ()
    moments: tuple[Moment, ...] = ()
    error: str = ""


class SpanSink(Protocol):
    """Takes finished spans. `take` never blocks; `close` may wait a moment for what is not delivered yet."""

    def take(self, span: Span) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ChangeTrace:
    """The ids of a change's trace, derived from what names the change: its host, its id, and when it was accepted.

    Every process derives the same ids and, from them, the same decision whether the change is traced at all. The time
    is part of the name because a database that lost its last commits assigns ids again. `trace_id`: 128 bits.
    `span_id`: 64 bits, of the span of the whole change, the parent of all others.
    """

    trace_id: int
    span_id: int

    @staticmethod
    def of(host: str, change_id: int, accepted_at_ms: int) -> ChangeTrace:
        digest = _digest(f"oldhost-sync {host} {change_id} {accepted_at_ms}")
        return ChangeTrace(int.from_bytes(digest[:16]), int.from_bytes(digest[16:24]))

    def is_sampled(self, ratio: float) -> bool:
        """Whether it is in this share of all changes, 0 to 1; a larger share contains every smaller one."""
        return self.trace_id % _RANGE < ratio * _RANGE

    def span_of(self, name: str, at: int = 0) -> int:
        """The id of a span, derived from its name and its start: reported twice, it is the same span."""
        return int.from_bytes(_digest(f"{self.trace_id:032x} {name} {at}")[:8])


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


@dataclass(frozen=True, slots=True)
class RemoteParent:
    """The caller's span, and whether the caller records it."""

    span: SpanAddress
    sampled: bool


def read_traceparent(header: bytes) -> RemoteParent | None:
    """W3C's header `traceparent`: the trace that a request belongs to. None if it is not valid.

    Then the request begins a trace of its own, as the standard says.
    """
    found = _VERSION_0.fullmatch(header.strip())
    if found is None or (found[1] == b"00" and found[5] is not None):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    return RemoteParent(SpanAddress(trace_id, span_id), bool(int(found[4], 16) & 1))
