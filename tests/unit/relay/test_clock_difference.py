"""Clocks that differ are told of, once."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge

from oldhost_sync.relay.promises import ClockDifference

NOW = 1_800_000_000.0


@pytest.fixture
def gauge() -> Gauge:
    return Gauge("difference", "", registry=CollectorRegistry())


@pytest.mark.parametrize(("ahead_s", "way"), [(7200, "7200 s ahead of this"), (-7200, "7200 s behind this")])
def test_a_difference_is_told_once_with_its_way_and_once_when_it_is_over(
    gauge: Gauge, caplog: pytest.LogCaptureFixture, ahead_s: float, way: str
) -> None:
    clocks = ClockDifference(gauge, wall=lambda: NOW)
    for _ in range(3):
        clocks.saw(NOW + ahead_s, 0.0)
    (told,) = caplog.messages
    assert way in told
    for _ in range(3):
        clocks.saw(NOW, 0.0)
    assert caplog.messages[1:] == ["MariaDB's clock and this machine's agree again"]


def test_a_difference_around_the_limit_is_not_told_again_and_again(
    gauge: Gauge, caplog: pytest.LogCaptureFixture
) -> None:
    clocks = ClockDifference(gauge, wall=lambda: NOW)
    for ahead_s in (29, 31, 29, 31, 29):
        clocks.saw(NOW + ahead_s, 0.0)
    assert len(caplog.messages) == 1


def test_what_the_look_itself_took_is_no_difference(gauge: Gauge) -> None:
    shown = []
    clocks = ClockDifference(gauge, wall=lambda: NOW)
    for database_s in (NOW - 40, NOW, NOW - 41, NOW + 1):
        clocks.saw(database_s, 40.0)
        (sample,) = next(iter(gauge.collect())).samples
        shown.append(sample.value)
    assert shown == [0, 0, -1, 1]
