"""How quickly what waits drains, and how many changes an operation carries, as seen over the last minutes."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.forecast.rates import PACE_SECONDS, RATIO_SECONDS, FateRates
from oldhost_sync.policy.rules.host_state import HostState, host_state


def test_what_waits_drains_at_the_pace_of_the_last_minutes() -> None:
    rates = FateRates(since=0.0)
    rates.saw(1.0, 1_000, 1_000)  # a burst that is over
    for second in range(1, 301):
        rates.saw(PACE_SECONDS + second, 2, 1)
    assert rates.drain_seconds(2 * PACE_SECONDS, 600) == pytest.approx(300, rel=0.02)


def test_nothing_waits_no_time_and_without_an_end_for_ever() -> None:
    rates = FateRates(since=0.0)
    assert rates.drain_seconds(10.0, 0) == 0
    assert rates.drain_seconds(10.0, 1) == float("inf")


def test_a_relay_that_has_just_taken_over_reckons_with_what_it_has_seen() -> None:
    rates = FateRates(since=100.0)
    rates.saw(105.0, 20, 20)
    assert rates.drain_seconds(110.0, 40) == pytest.approx(20)


def test_the_ratio_is_changes_to_an_operation_of_the_last_hour() -> None:
    rates = FateRates(since=0.0)
    assert rates.compression_ratio() == 1
    rates.saw(0.0, 100, 1)
    rates.saw(RATIO_SECONDS + 1, 9, 4)
    assert rates.compression_ratio() == 9 / 4


@pytest.mark.parametrize(
    ("so", "state"),
    [
        ({"halted", "paused", "banned"}, "halted"),
        ({"paused", "banned"}, "paused"),
        ({"banned"}, "banned"),
        (set(), "no-writer"),
        ({"writer_runs"}, "waiting"),
        ({"writer_runs", "fates_came"}, "sending"),
        ({"halted", "writer_runs", "fates_came"}, "halted"),
    ],
)
def test_what_stops_the_writer_is_said_first(so: set[str], state: HostState) -> None:
    facts = {name: name in so for name in ("halted", "paused", "banned", "writer_runs", "fates_came")}
    assert host_state(**facts) == state
