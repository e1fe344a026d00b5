"""A role's tracer while traces are on: decides which changes are traced, and passes on their spans."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from oldhost_sync.settings import Settings, SettingsError, TraceExport
from oldhost_sync.traces.span import ChangeTrace, Span, SpanSink

logger = logging.getLogger(__name__)


class Tracer:
    """`ratio`: the share of changes that are traced, 0 to 1. `now_ns`: since 1970."""

    def __init__(self, ratio: float, sink: SpanSink, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.ratio = ratio
        self.now_ns = now_ns
        self._sink = sink
        self._failed = False

    def trace_of(self, host: str, change_id: int, accepted_at_ms: int) -> ChangeTrace | None:
        """None for a change that is not traced."""
        trace = ChangeTrace.of(host, change_id, accepted_at_ms)
        return trace if trace.is_sampled(self.ratio) else None

    def record(self, make: Callable[[], Iterable[Span]]) -> None:
        """Make spans and pass them on. An error here is logged once and stops nothing: it is only a trace."""
        try:
            for span in make():
                self._sink.take(span)
        except Exception:
            if not self._failed:
                self._failed = True
                logger.exception("a span could not be made; others may be missing, too")

    def close(self) -> None:
        """Deliver what is left; waits a moment at most."""
        self._sink.close()


def role_tracer(settings: Settings, role: str) -> Tracer | None:
    """None while traces are off: then OpenTelemetry's SDK is not imported.

    SettingsError when the exporter is not installed or can't be set up.
    """
    if settings.traces is TraceExport.OFF:
        return None
    try:
        from oldhost_sync.traces.otlp_export import otlp_sink
    except ImportError as error:
        raise SettingsError(
            f"SYNC_TRACES is otlp, but {error.name or 'OpenTelemetry'} is not installed: "
            "install oldhost-sync[traces], or set SYNC_TRACES=off"
        ) from error
    try:
        return Tracer(settings.traces_ratio, otlp_sink(role))
    except (RuntimeError, ValueError) as error:
        raise SettingsError(f"SYNC_TRACES is otlp, but its exporter can't be set up: {error}") from error
