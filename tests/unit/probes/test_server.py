"""A role's HTTP server, on either kind of address."""

from __future__ import annotations

import urllib.request
from types import SimpleNamespace
from wsgiref.simple_server import make_server

import pytest
from prometheus_client import CollectorRegistry

from oldhost_sync.probes import server as probes
from oldhost_sync.probes.health import Liveness, Readiness
from oldhost_sync.probes.server import served
from oldhost_sync.stack.ports import free_port


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_it_serves_at_an_address_of_either_kind(address: str) -> None:
    bind = f"{address}:{free_port()}"
    with (
        served(bind, CollectorRegistry(), Readiness(), Liveness()),
        urllib.request.urlopen(f"http://{bind}/metrics", timeout=5) as answer,
    ):
        assert answer.status == 200


def test_a_process_without_a_free_file_descriptor_does_not_turn_in_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection that can't be taken stays where it is, so the loop comes back at once."""
    pauses: list[float] = []
    monkeypatch.setattr(probes, "time", SimpleNamespace(sleep=pauses.append))
    with make_server("127.0.0.1", 0, lambda *_: [], server_class=probes._Server) as server:
        server.socket.close()
        with pytest.raises(OSError, match="descriptor"):
            server.get_request()
    assert pauses == [probes.ACCEPT_AGAIN_SECONDS]
