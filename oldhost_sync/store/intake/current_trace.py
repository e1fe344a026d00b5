"""The span that the application is in, as OpenTelemetry knows it, if the application has loaded that: we never do."""

from __future__ import annotations

import sys


def current_traceparent() -> str | None:
    """As W3C writes it; None: there is none."""
    opentelemetry = sys.modules.get("opentelemetry.trace")
    current_span = getattr(opentelemetry, "get_current_span", None)
    if current_span is None:
        return None
    context = current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
