"""A simulator for each test; the conformance suite takes any OldHost whose address is given instead.

`OLDHOST_URL=http://… OLDHOST_BAN_SECONDS=1 pytest tests/simulator/test_conformance.py` runs the suite against another
make.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from oldhost_simulator import Config, Simulator
from tests.simulator.client import AdminClient, Line
from tests.simulator.conformance import HostUnderTest


@pytest.fixture
def host() -> Iterator[HostUnderTest]:
    url = os.environ.get("OLDHOST_URL")
    if url is not None:
        yield HostUnderTest(url, ban_seconds=float(os.environ.get("OLDHOST_BAN_SECONDS", "900")))
        return
    with Simulator(Config(latency_ms=2, ban_seconds=0.15, first_nonce=501)) as simulator:
        yield HostUnderTest(simulator.url, ban_seconds=0.15)


@pytest.fixture
def start() -> Iterator[Callable[..., Simulator]]:
    """Starts simulators with given settings; they end with the test."""
    with ExitStack() as stack:

        def start_one(**settings: Any) -> Simulator:
            return stack.enter_context(Simulator(Config(**{"latency_ms": 1, "ban_seconds": 0.1, **settings})))

        yield start_one


@pytest.fixture
def simulator(start: Callable[..., Simulator]) -> Simulator:
    return start()


@pytest.fixture
def admin(simulator: Simulator) -> AdminClient:
    return AdminClient(simulator.admin_url)


@pytest.fixture
def line(simulator: Simulator) -> Iterator[Line]:
    with Line(simulator.url) as line:
        yield line
