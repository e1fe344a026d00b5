"""How long a signal may wait, by the debounce."""

from __future__ import annotations

import pytest

from oldhost_sync.relay.duty import RelayPace


def intervals(pace: RelayPace) -> tuple[float, float, float]:
    return pace.signal_interval_s, pace.calm_interval_s, pace.backlog_interval_s


@pytest.mark.parametrize("debounce_s", [120.0, 600.0])
def test_the_usual_debounce_or_a_longer_one_changes_no_interval(debounce_s: float) -> None:
    assert RelayPace().within(debounce_s) == RelayPace()


@pytest.mark.parametrize(
    ("debounce_s", "expected"), [(45.0, (1.0, 1.5, 1.5)), (15.0, (0.5, 0.5, 0.5)), (90.0, (1.0, 2.0, 3.0))]
)
def test_no_signal_waits_longer_than_a_thirtieth_of_the_debounce(
    debounce_s: float, expected: tuple[float, float, float]
) -> None:
    assert intervals(RelayPace().within(debounce_s)) == expected


@pytest.mark.parametrize("debounce_s", [0.0, 1.0])
def test_two_signals_are_as_far_apart_as_two_looks(debounce_s: float) -> None:
    pace = RelayPace()
    assert intervals(pace.within(debounce_s)) == (pace.poll_s,) * 3
