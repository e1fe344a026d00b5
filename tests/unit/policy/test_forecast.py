"""The forecast of runs of release 1: drain time is backlog / (service - arrivals), and what breaks a promise."""

from __future__ import annotations

from oldhost_sync.policy.forecast import Load, forecast_of_release_1


def load(operations: int = 0, emergencies: int = 0, arrivals_per_s: float = 0.0, **rest: int) -> Load:
    return Load(operations, emergencies, arrivals_per_s, 400.0, rest.get("oldest_age_ms", 0), rest.get("blocked_ms", 0))


def test_nothing_waiting_drains_at_once() -> None:
    assert forecast_of_release_1(load()).drain_ms == 0


def test_a_backlog_drains_at_oldhosts_pace() -> None:
    assert forecast_of_release_1(load(operations=2_500)).drain_ms == 1_000_000


def test_arrivals_slow_the_drain() -> None:
    assert forecast_of_release_1(load(operations=2_500, arrivals_per_s=1.25)).drain_ms == 2_000_000


def test_arrivals_at_oldhosts_pace_never_drain() -> None:
    predicted = forecast_of_release_1(load(operations=1, arrivals_per_s=2.5))
    assert predicted.drain_ms is None
    assert predicted.breaks_consistency


def test_nothing_drains_during_a_ban() -> None:
    assert forecast_of_release_1(load(operations=1, blocked_ms=900_000)).drain_ms == 900_400


def test_thirty_six_thousand_operations_are_the_most_in_four_hours() -> None:
    assert not forecast_of_release_1(load(operations=36_000)).breaks_consistency
    assert forecast_of_release_1(load(operations=36_001)).breaks_consistency


def test_seventy_five_emergencies_are_the_most_in_thirty_seconds() -> None:
    assert not forecast_of_release_1(load(operations=75, emergencies=75)).breaks_emergency
    assert forecast_of_release_1(load(operations=76, emergencies=76)).breaks_emergency


def test_an_emergency_in_a_ban_breaks_its_promise() -> None:
    assert forecast_of_release_1(load(operations=1, emergencies=1, blocked_ms=60_000)).breaks_emergency


def test_no_emergency_breaks_no_promise_of_theirs() -> None:
    assert not forecast_of_release_1(load(operations=1, blocked_ms=60_000)).breaks_emergency
