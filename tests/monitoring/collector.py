"""A collector: takes OTLP over HTTP on a real socket and keeps the spans; or takes connections and never answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class ReceivedSpan:
    """As it came; ids as hexadecimal digits. `links`: (trace, what it means)."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    begin_ns: int
    end_ns: int
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    moments: list[str]
    failed: bool


@dataclass
class Collector:
    """`status`: what it answers; `bodies`: the spans as they came; `posts`: all that came, also metrics and logs."""

    address: str = ""
    status: int = 200
    spans: list[ReceivedSpan] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    posts: int = 0

    def take(self, body: bytes) -> None:
        self.bodies.append(body)
        request = ExportTraceServiceRequest.FromString(body)
        for resource_spans in request.resource_spans:
            service = _values(resource_spans.resource.attributes)["service.name"]
            self.spans += [_read(service, span) for scope in resource_spans.scope_spans for span in scope.spans]

    def trace(self, trace_id: str) -> list[ReceivedSpan]:
        found = [span for span in self.spans if span.trace_id == trace_id]
        return sorted(found, key=lambda span: (bool(span.parent_id), span.end_ns))

    def of_change(self, change_id: int) -> list[ReceivedSpan]:
        """The trace of a change, found as an operator finds it."""
        ids = {span.trace_id for span in self.spans if span.attributes.get("sync.change_id") == change_id}
        assert len(ids) <= 1, "one change, one trace"
        return [span for trace_id in ids for span in self.trace(trace_id)]


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """One that takes what comes."""
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            kept.posts += 1
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if kept.status == 200 and self.path == "/v1/traces":
                kept.take(body)
            self.send_response(kept.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    kept.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def silent_collector() -> Iterator[tuple[str, threading.Event]]:
    """One that accepts connections, reads, and never answers: its address, and whether somebody came."""
    came, over = threading.Event(), threading.Event()
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def accept() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    held.append(server.accept()[0])
                    came.set()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", came
        finally:
            over.set()
            thread.join()
            for each in held:
                each.close()


def _read(service: str, span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        begin_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_values(span.attributes),
        links=[(link.trace_id.hex(), _values(link.attributes)["sync.link"]) for link in span.links],
        moments=[event.name for event in span.events],
        failed=span.status.code == 2,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
