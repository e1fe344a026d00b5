"""A duty's loop tells of each host that it fails for, and slows down only if the whole duty fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry

from oldhost_sync.relay.duty import FAILED_ROUNDS_BEFORE_LOG, DutyLoop, HostFailures, HostsFailed
from oldhost_sync.store.errors import StatementRefused, TransactionContended
from oldhost_sync.telemetry import RelayMetrics

LOCKED = TransactionContended("lock wait timeout (MariaDB 1205)")


class Watching:
    """A duty for all hosts. `failing`: by host, what is raised."""

    name = "watching"
    host = "all hosts"
    pause_s = 1.0

    def __init__(self) -> None:
        self.failing: Mapping[str, Exception] = {}

    async def run_once(self, now: float) -> float:
        with HostFailures() as failures:
            for host in ("north", "south", "west"):
                with failures.of(host):
                    if host in self.failing:
                        raise self.failing[host]
        if self.host in self.failing:
            raise self.failing[self.host]
        return self.pause_s


@pytest.fixture
def loop(caplog: pytest.LogCaptureFixture) -> DutyLoop:
    caplog.set_level(logging.INFO, "oldhost_sync.relay.duty")
    return DutyLoop(Watching(), monotonic=float, metrics=RelayMetrics(CollectorRegistry()))


def rounds(loop: DutyLoop, count: int, **failing: Exception) -> list[float]:
    """The pauses after so many rounds."""
    assert isinstance(loop.duty, Watching)
    loop.duty.failing = {host.replace("_", " "): error for host, error in failing.items()}
    return [asyncio.run(loop.guarded_round()) for _ in range(count)]


def test_each_host_is_told_of_when_it_has_failed_for_some_rounds_whatever_other_hosts_do(
    loop: DutyLoop, caplog: pytest.LogCaptureFixture
) -> None:
    rounds(loop, 2 * FAILED_ROUNDS_BEFORE_LOG, north=LOCKED)
    rounds(loop, 2 * FAILED_ROUNDS_BEFORE_LOG, north=LOCKED, south=LOCKED)
    rounds(loop, 1, south=LOCKED)
    assert [record.getMessage() for record in caplog.records] == [
        "relay of north: watching fails: lock wait timeout (MariaDB 1205)",
        "relay of south: watching fails: lock wait timeout (MariaDB 1205)",
        "relay of north: watching works again",
    ]


def test_an_unforeseen_error_of_one_host_is_told_with_its_traceback_and_slows_no_other_down(
    loop: DutyLoop, caplog: pytest.LogCaptureFixture
) -> None:
    assert rounds(loop, 6, north=LOCKED, south=ValueError("no such thing")) == [1.0] * 6
    (told,) = [record for record in caplog.records if record.exc_info]
    assert told.getMessage() == "relay of south: watching failed unexpectedly"


def test_an_unforeseen_error_of_the_whole_duty_slows_it_down(loop: DutyLoop) -> None:
    assert rounds(loop, 6, all_hosts=ValueError("no such thing")) == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_failures_are_counted_by_host(loop: DutyLoop) -> None:
    rounds(loop, 2, north=LOCKED)
    assert loop.metrics is not None
    assert loop.metrics.failures.labels("north", "watching")._value.get() == 2


def test_what_ends_the_whole_round_is_raised_as_it_is() -> None:
    def ends() -> None:
        with HostFailures() as failures:
            with failures.of("north"):
                raise LOCKED
            raise KeyError

    with pytest.raises(KeyError):
        ends()


def test_a_round_says_which_hosts_failed_and_why() -> None:
    watching = Watching()
    watching.failing = {"north": LOCKED, "west": ValueError("no such thing")}
    with pytest.raises(HostsFailed, match=r"^north: lock wait timeout \(MariaDB 1205\); west: no such thing$"):
        asyncio.run(watching.run_once(0.0))


def test_a_statement_that_is_refused_for_one_host_keeps_none_of_the_others_waiting() -> None:
    watching = Watching()
    watching.failing = {"north": StatementRefused("a trigger refuses it"), "west": LOCKED}
    with pytest.raises(HostsFailed, match=r"^north: a trigger refuses it; west: lock wait timeout"):
        asyncio.run(watching.run_once(0.0))
