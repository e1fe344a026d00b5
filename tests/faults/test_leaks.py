"""What is called a leak: a line through what was measured, each life of a process by itself."""

from __future__ import annotations

import pytest

from tests.faults.leaks import MEASURES, SAMPLES_MIN, Life, Slope, slope


def life(first: float, per_hour: float, *, begins: float = 600.0, samples: int = 60) -> Life:
    return [(begins + 10.0 * n, first + per_hour * 10.0 * n / 3600 + (-1) ** n) for n in range(samples)]


def test_the_slope_of_one_life_is_that_of_its_line() -> None:
    found = slope("memory worker-1", [life(100.0, 36.0)])
    assert found is not None
    assert found.per_hour == pytest.approx(36.0, abs=1.0)
    assert found.mean == pytest.approx(103.0, abs=0.2)


def test_lives_that_begin_higher_or_lower_make_no_slope() -> None:
    lives = [life(100.0, 0.0), life(150.0, 0.0, begins=1300.0), life(170.0, 0.0, begins=2000.0)]
    found = slope("memory worker-1", lives)
    assert found is not None
    assert abs(found.per_hour) < 1.0
    assert found.is_level


def test_a_leak_in_each_of_many_short_lives_is_found() -> None:
    lives = [life(100.0, 60.0, begins=600.0 + 900 * n, samples=80) for n in range(5)]
    found = slope("memory worker-1", lives)
    assert found is not None
    assert found.per_hour == pytest.approx(60.0, abs=2.0)
    assert not found.is_level


def test_too_few_samples_say_nothing() -> None:
    assert slope("files api", [life(10.0, 0.0, samples=SAMPLES_MIN - 1), life(10.0, 0.0, samples=1)]) is None


@pytest.mark.parametrize("kind", [name for name in MEASURES if name != "growing"])
def test_what_rises_by_more_than_its_measure_is_a_leak(kind: str) -> None:
    most = max(MEASURES[kind].rise_max, MEASURES[kind].share_max * 100.0)
    assert Slope(f"{kind} x", most, 100.0, 3600.0).is_level
    assert not Slope(f"{kind} x", most * 1.01, 100.0, 3600.0).is_level
    assert Slope("growing outbox_events", 1e6, 100.0, 3600.0).is_level
