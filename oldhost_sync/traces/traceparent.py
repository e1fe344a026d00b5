"""The header `traceparent` of W3C's Trace Context: the trace that a caller's request belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oldhost_sync.traces.span import SpanAddress

_VERSION_0 = re.compile(rb"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class RemoteParent:
    """The caller's span, and whether the caller records it."""

    span: SpanAddress
    sampled: bool


def read_traceparent(header: bytes) -> RemoteParent | None:
    """None for a header that is not valid: then the request begins a trace of its own, as the standard says."""
    found = _VERSION_0.fullmatch(header.strip())
    if found is None or (found[1] == b"00" and found[5] is not None):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    return RemoteParent(SpanAddress(trace_id, span_id), bool(int(found[4], 16) & 1))
