"""Sends spans to a collector by OTLP over HTTP, with OpenTelemetry's SDK and exporter, set by its variables (OTEL_…).

Nothing waits for the collector: spans go into a bounded queue, whose thread delivers them in batches. While the
collector is down or slow, the oldest spans are dropped. This is logged once, and again when it is back.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import (
    SERVICE_INSTANCE_ID,
    SERVICE_NAME,
    SERVICE_NAMESPACE,
    OTELResourceDetector,
    Resource,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link as OtelLink
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from oldhost_sync.traces.span import Span, SpanAddress

logger = logging.getLogger(__name__)

NAMESPACE = "oldhost-sync"
# How long a role that ends waits for a slow collector.
CLOSE_SECONDS_MAX = 2.0
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NOWHERE = Context()


class _GivenIds(IdGenerator):
    """Gives each span the ids that were chosen for it."""

    def __init__(self) -> None:
        self._next = threading.local()

    def give(self, address: SpanAddress) -> None:
        self._next.address = address

    def generate_trace_id(self) -> int:
        address: SpanAddress = self._next.address
        return address.trace_id

    def generate_span_id(self) -> int:
        address: SpanAddress = self._next.address
        return address.span_id


class SpanDelivery(SpanExporter):
    """An exporter that logs the first of its failures in a row, and the first success after them."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            logger.warning("traces can't be delivered (OTEL_EXPORTER_OTLP_ENDPOINT); spans are dropped")
        elif self._failing and not failed:
            logger.info("traces are delivered again")
        self._failing = failed
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class OtelSink:
    """A :class:`~oldhost_sync.traces.span.SpanSink` that passes spans to `exporter` in batches."""

    def __init__(self, exporter: SpanExporter, resource: Resource) -> None:
        self._ids = _GivenIds()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # the sampling is decided before, the same in all processes
            resource=resource,
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(NAMESPACE)

    def take(self, span: Span) -> None:
        self._ids.give(span.address)
        parent = (
            _NOWHERE if span.parent is None else set_span_in_context(NonRecordingSpan(_context(span.parent)), _NOWHERE)
        )
        started = self._tracer.start_span(
            span.name,
            parent,
            SpanKind[span.kind.name],
            dict(span.attributes),
            [OtelLink(_context(link.to), {"sync.link": link.meaning}) for link in span.links],
            span.begin_ns,
        )
        for moment in span.moments:
            started.add_event(moment.name, dict(moment.attributes), moment.at_ns)
        if span.error:
            started.set_status(Status(StatusCode.ERROR, span.error))
        started.end(span.end_ns)

    def close(self) -> None:
        """Deliver what is queued; give up after a moment if the collector does not answer."""
        leaving = threading.Thread(target=self._provider.shutdown, name="traces-closing", daemon=True)
        leaving.start()
        leaving.join(CLOSE_SECONDS_MAX)


def _context(address: SpanAddress) -> SpanContext:
    return SpanContext(address.trace_id, address.span_id, is_remote=True, trace_flags=_SAMPLED)


def otlp_sink(role: str) -> OtelSink:
    """To the collector that OTEL_EXPORTER_OTLP_ENDPOINT names (default http://localhost:4318)."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it would log every failed batch
    return OtelSink(SpanDelivery(OTLPSpanExporter()), _resource(role))


def _resource(role: str) -> Resource:
    """The process that makes the spans. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have precedence."""
    instance = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    ours = {SERVICE_NAME: f"{NAMESPACE}-{role}", SERVICE_NAMESPACE: NAMESPACE, SERVICE_INSTANCE_ID: instance}
    return Resource(ours).merge(OTELResourceDetector().detect())
