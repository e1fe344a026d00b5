"""Spans on the wire: as they were made; and a collector that is away or says nothing keeps nobody waiting."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from oldhost_sync.settings import load_settings
from oldhost_sync.traces.otlp_export import OtelSink
from oldhost_sync.traces.span import ChangeTrace, Kind, Link, Moment, Span, SpanAddress
from oldhost_sync.traces.tracer import Tracer, role_tracer
from tests.monitoring.collector import collector, silent_collector

# The SDK's own bound, as operations.md tells it.
QUEUED_MAX = 2048
TRACE = ChangeTrace.of("oldhost", 7, 99)
OTHER = ChangeTrace.of("oldhost", 8, 99)
WHOLE = SpanAddress(TRACE.trace_id, TRACE.span_id)
ROOT_SPAN = Span(
    "change",
    WHOLE,
    None,
    1_000_000,
    5_000_000,
    {"sync.change_id": 7, "sync.outcome": "DEAD"},
    links=(Link(SpanAddress(OTHER.trace_id, OTHER.span_id), "supersedes"),),
    moments=(Moment("sent", 2_000_000, {"sync.nonce": 3}),),
    error="DEAD",
)
PART = Span("relay", SpanAddress(TRACE.trace_id, 5), WHOLE, 1_000_000, 2_000_000, {"sync.change_id": 7}, Kind.PRODUCER)


def tracer_to(address: str, monkeypatch: pytest.MonkeyPatch, role: str = "relay") -> Tracer:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    tracer = role_tracer(load_settings(traces="otlp"), role)
    assert tracer is not None
    return tracer


def processor_of(tracer: Tracer) -> BatchSpanProcessor:
    """The SDK's part of it, with its queue and its thread."""
    sink = tracer._sink
    assert isinstance(sink, OtelSink)
    (processor,) = sink._provider._active_span_processor._span_processors
    assert isinstance(processor, BatchSpanProcessor)
    return processor


def test_a_span_arrives_as_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as kept:
        tracer = tracer_to(kept.address, monkeypatch)
        tracer.record(lambda: [ROOT_SPAN, PART])
        tracer.close()
    whole, part = kept.trace(f"{TRACE.trace_id:032x}")
    assert (whole.service, whole.name, whole.span_id) == ("oldhost-sync-relay", "change", f"{TRACE.span_id:016x}")
    assert (whole.parent_id, whole.begin_ns, whole.end_ns, whole.failed) == ("", 1_000_000, 5_000_000, True)
    assert whole.attributes == {"sync.change_id": 7, "sync.outcome": "DEAD"}
    assert (whole.links, whole.moments) == ([(f"{OTHER.trace_id:032x}", "supersedes")], ["sent"])
    assert (part.span_id, part.parent_id, part.failed) == (f"{5:016x}", whole.span_id, False)


def test_a_service_may_be_named_by_the_standard_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    with collector() as kept:
        tracer = tracer_to(kept.address, monkeypatch)
        tracer.record(lambda: [PART])
        tracer.close()
    assert [span.service for span in kept.spans] == ["ours"]


def test_a_silent_collector_keeps_neither_spans_nor_a_leaving_role_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_collector() as (address, came):
        tracer = tracer_to(address, monkeypatch)
        tracer.record(lambda: [PART])
        assert came.wait(30), "the exporter waits for its answer now"
        tracer.record(lambda: (PART for _ in range(QUEUED_MAX + 1000)))
        processor = processor_of(tracer)
        delivery = processor._batch_processor._worker_thread
        assert len(processor._batch_processor._queue) == QUEUED_MAX
        tracer.close()
        assert delivery.is_alive(), "it left, and the delivery waits still"
        processor.span_exporter.shutdown()
    delivery.join(60)
    assert not delivery.is_alive()


def test_a_collector_that_refuses_is_told_once_and_once_when_it_takes_spans_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with collector() as kept:
        tracer = tracer_to(kept.address, monkeypatch)
        processor = processor_of(tracer)
        for kept.status in (400, 400, 200, 200):
            tracer.record(lambda: [PART])
            processor.force_flush()
        tracer.close()
    assert [record.message for record in caplog.records] == [
        "traces can't be delivered (OTEL_EXPORTER_OTLP_ENDPOINT); spans are dropped",
        "traces are delivered again",
    ]
    assert len(kept.spans) == 2


def test_nobody_at_the_address_is_told_once_and_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    with collector() as gone:
        address = gone.address
    tracer = tracer_to(address, monkeypatch)
    processor = processor_of(tracer)
    for _ in range(3):
        tracer.record(lambda: [PART])
        processor.force_flush()
    tracer.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
