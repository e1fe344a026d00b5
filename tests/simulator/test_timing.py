"""How long OldHost takes. Only lower bounds: what a loaded machine adds is not the simulator's."""

import time
from collections.abc import Callable

import pytest

from oldhost_simulator import Simulator
from tests.simulator.client import AdminClient, Line, operation, sync_bytes


@pytest.mark.parametrize("what", ["sync", "ask", "gap", "malformed", "banned"])
def test_every_request_takes_the_latency(start: Callable[..., Simulator], what: str) -> None:
    simulator = start(latency_ms=20.5, ban_seconds=60)
    if what == "banned":
        AdminClient(simulator.admin_url).post("/actions/ban")
    nonces = {"sync": 1, "gap": 5, "malformed": None, "banned": 1}
    with Line(simulator.url) as line:
        begun = time.monotonic()
        if what == "ask":
            line.ask()
        else:
            line.sync(nonces[what])
        assert time.monotonic() - begun >= 0.0205


def test_a_waiting_request_begins_when_the_one_before_is_answered(start: Callable[..., Simulator]) -> None:
    simulator = start(latency_ms=20)
    with Line(simulator.url) as line:
        line.send(sync_bytes(1, operation(1)) + sync_bytes(2, operation(2)))
        line.receive()
        line.receive()
    first, second = AdminClient(simulator.admin_url).journal()
    assert first["applied_at"] - first["received_at"] >= 0.02
    assert second["received_at"] >= first["applied_at"]
    assert second["applied_at"] - second["received_at"] >= 0.02


def test_a_refused_connection_does_not_wait_for_the_latency(start: Callable[..., Simulator]) -> None:
    simulator = start(latency_ms=60_000)
    with Line(simulator.url) as line:
        line.send(sync_bytes(1, operation()))
        with Line(simulator.url) as second:
            assert second.receive().status == 503


def test_jitter_is_of_the_seed_and_never_takes_time_back(start: Callable[..., Simulator]) -> None:
    simulator = start(latency_ms=1, jitter_ms=5)
    with Line(simulator.url) as line:
        assert [line.sync(nonce).status for nonce in range(1, 20)] == [200] * 19
