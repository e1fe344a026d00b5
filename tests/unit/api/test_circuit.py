"""The circuit before a server: what it lets through while the server is known to be away."""

from __future__ import annotations

from functools import partial

from oldhost_sync.api.bounded_waits import Circuit
from oldhost_sync.api.problems import database_away

GONE = partial(database_away, "gone")


def test_a_closed_circuit_lets_everybody_through() -> None:
    circuit = Circuit(1.0)
    assert all(circuit.admits(now) for now in (0.0, 0.0, 5.0))
    assert not circuit.is_open


def test_an_open_circuit_lets_one_through_per_interval() -> None:
    circuit = Circuit(1.0)
    circuit.failed(10.0, GONE)
    assert [circuit.admits(now) for now in (10.0, 10.9, 11.0, 11.1, 12.0)] == [False, False, True, False, True]
    assert circuit.problem().content == GONE().content


def test_one_success_closes_it() -> None:
    circuit = Circuit(1.0)
    circuit.failed(10.0, GONE)
    circuit.succeeded()
    assert circuit.admits(10.0)
