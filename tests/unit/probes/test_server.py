"""A role's HTTP server, on either kind of address."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client import CollectorRegistry

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
