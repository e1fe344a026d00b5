"""Metrics are served, and hold numbers by class alone."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from oldhost_sync.probes import server as role_server
from oldhost_sync.probes.health import STALE_SECONDS, STUCK_SECONDS, Liveness, Readiness
from oldhost_sync.probes.server import CONNECTIONS_MAX, served
from oldhost_sync.stack.machine import free_port
from oldhost_sync.telemetry import RelayMetrics, WorkerMetrics, show_role


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
    url = f"http://127.0.0.1:{port}/metrics"
    with served(f"127.0.0.1:{port}", registry, Readiness()), urllib.request.urlopen(url, timeout=5) as page:
        assert b"oldhost_sync_scheduled_recorded_total" in page.read()


def test_readiness_is_what_the_role_last_found_out_and_unready_when_that_is_long_ago() -> None:
    clock = [0.0]
    readiness = Readiness(monotonic=lambda: clock[0])
    assert readiness.poll()[0] is False
    readiness.found({"database": "", "temporal": ""})
    assert readiness.poll() == (True, {"database": "ok", "temporal": "ok"})
    readiness.found({"database": "", "temporal": "Temporal does not answer"})
    assert readiness.poll() == (False, {"database": "ok", "temporal": "Temporal does not answer"})
    readiness.found({"database": ""})
    clock[0] = STALE_SECONDS + 1
    assert readiness.poll()[0] is False


def test_a_role_answers_probes_without_a_token() -> None:
    readiness = Readiness()
    port = free_port()
    with served(f"127.0.0.1:{port}", CollectorRegistry(), readiness):
        assert probed(port, "/healthz") == (200, {"status": "ok"})
        assert probed(port, "/readyz")[0] == 503
        readiness.found({"writer oldhost": "FAILING: run 1"})
        assert probed(port, "/readyz") == (503, {"status": "unready", "checks": {"writer oldhost": "FAILING: run 1"}})
        readiness.found({"writer oldhost": ""})
        assert probed(port, "/readyz") == (200, {"status": "ok", "checks": {"writer oldhost": "ok"}})
        assert probed(port, "/other")[0] == 404


def test_a_role_whose_loop_stands_still_is_not_alive() -> None:
    clock = [0.0]
    liveness = Liveness(monotonic=lambda: clock[0])
    port = free_port()
    with served(f"127.0.0.1:{port}", CollectorRegistry(), Readiness(), liveness):
        assert probed(port, "/healthz")[0] == 200
        clock[0] = STUCK_SECONDS + 1
        assert probed(port, "/healthz") == (503, {"status": "stuck"})
        liveness.beat()
        assert probed(port, "/healthz")[0] == 200


def test_silent_connections_keep_nobody_from_probing() -> None:
    """The oldest gives its place up to a newcomer, and no other does."""
    port = free_port()
    with served(f"127.0.0.1:{port}", CollectorRegistry(), Readiness()), contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(CONNECTIONS_MAX)
        ]
        assert probed(port, "/healthz")[0] == 200
        assert silent[0].recv(1_000) == b""
        silent[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[1].recv(1_000)


def test_silent_connections_are_closed_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_server, "REQUEST_SECONDS_MAX", 0.2)
    port = free_port()
    with served(f"127.0.0.1:{port}", CollectorRegistry(), Readiness()), contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(CONNECTIONS_MAX + 5)
        ]
        for connection in silent:
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1_000) == b""
        monkeypatch.setattr(role_server, "REQUEST_SECONDS_MAX", 30.0)
        assert probed(port, "/healthz")[0] == 200


def probed(port: int, path: str) -> tuple[int, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    return answer.status, content


def test_a_role_shows_its_process_and_when_it_last_looked_at_itself_in_our_name_space() -> None:
    registry, readiness = CollectorRegistry(), Readiness()
    show_role(registry, "relay", readiness.looked_at)
    shown = 'oldhost_sync_role_looked_at_seconds{role="relay"}'
    assert f"{shown} 0.0" in generate_latest(registry).decode()
    readiness.found({})
    page = generate_latest(registry).decode()
    assert f"{shown} 0.0" not in page
    assert "oldhost_sync_process_resident_memory_bytes" in page
    assert [line for line in page.splitlines() if not line.startswith(("#", "oldhost_sync_"))] == []
