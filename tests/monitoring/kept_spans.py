"""A sink that keeps the spans, for tests of what is in them."""

from __future__ import annotations

from oldhost_sync.traces.span import ChangeTrace, Span
from oldhost_sync.traces.tracer import Tracer


class KeptSpans:
    """`spans` in the order in which they were made; `closed`: nobody makes more."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.closed = False

    def take(self, span: Span) -> None:
        self.spans.append(span)

    def close(self) -> None:
        self.closed = True

    def tracer(self, ratio: float = 1.0) -> Tracer:
        return Tracer(ratio, self)

    def trace(self, trace: ChangeTrace) -> list[Span]:
        """The spans of this trace in the order in which they ended, the whole first."""
        found = [span for span in self.spans if span.address.trace_id == trace.trace_id]
        return sorted(found, key=lambda span: (span.parent is not None, span.end_ns))

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def said(self) -> str:
        """All that any span says, as one text."""
        return repr(self.spans)
