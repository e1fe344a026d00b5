"""A span as a value: what happened from when to when, in which trace. It is complete when it is made.

Times are nanoseconds since 1970, as in OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

Attributes = Mapping[str, str | int]


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
