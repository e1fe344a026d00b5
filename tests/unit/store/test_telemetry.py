"""Metrics are served, and hold numbers by class alone."""

from __future__ import annotations

import socket
import urllib.request

from prometheus_client import CollectorRegistry, generate_latest

from oldhost_sync.telemetry import RelayMetrics, WorkerMetrics, serve_metrics


def test_the_roles_sets_can_share_one_registry() -> None:
    registry = CollectorRegistry()
    RelayMetrics(registry).relayed.labels("oldhost", "TXN").inc()
    WorkerMetrics(registry).operations.labels("oldhost", "APPLIED").inc()
    page = generate_latest(registry).decode()
    assert 'oldhost_sync_relayed_changes_total{host="oldhost",priority_class="TXN"} 1.0' in page
    assert 'oldhost_sync_operations_total{host="oldhost",outcome="APPLIED"} 1.0' in page


def test_metrics_are_served_until_stopped() -> None:
    registry = CollectorRegistry()
    RelayMetrics(registry).scheduled.labels("oldhost").inc(3)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    stop = serve_metrics(f"127.0.0.1:{port}", registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            assert b"oldhost_sync_scheduled_recorded_total" in page.read()
    finally:
        stop()
