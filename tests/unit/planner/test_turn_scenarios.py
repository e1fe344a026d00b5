"""What each rule about turns is for, on a virtual clock: today's decisions beside those before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.planner.turn_scenarios import (
    FIGURES,
    LWW,
    TXN,
    Figures,
    early,
    hot,
    inherited,
    keys_beside_txn,
    late,
    mean_s,
    others_mean_s,
    peak,
    peak_of_properties,
    storm,
    storm_of_hours,
    txn_beside_keys,
    uneven,
    worst_s,
)

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"


@pytest.mark.parametrize("name", FIGURES)
def test_the_page_on_scaling_tells_what_the_planner_says_today(name: str) -> None:
    play, figures = FIGURES[name]
    told = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {name} |")]
    assert told == list(play().lines(name, figures))


@pytest.mark.parametrize("latency_ms", [400, 100, 20])
@pytest.mark.parametrize("units", [1, 2])
def test_one_busy_unit_drains_as_quickly_as_its_operations_can_follow_one_another(units: int, latency_ms: int) -> None:
    assert hot(units, latency_ms).after.drained_ratio < 1.05
    assert hot(units, latency_ms).after.drained_ms == hot(2_000, latency_ms).after.drained_ms


def test_before_sends_had_several_operations_of_a_unit_a_quick_oldhost_waited_for_each_report() -> None:
    assert hot(1, 20).before.drained_ratio > 5


def test_in_the_peak_a_key_that_changes_often_is_less_old_when_it_goes() -> None:
    found = peak()
    assert found.after.oldest_ms < 0.9 * found.before.oldest_ms


def test_the_peak_needs_no_more_operations_and_no_more_time_for_it() -> None:
    found = peak()
    assert found.after.operations <= found.before.operations
    assert found.after.drained_ms <= found.before.drained_ms


def test_where_few_units_change_often_and_most_seldom_the_oldest_key_is_less_old() -> None:
    found = uneven()
    p99_s = worst_s(LWW, 0.99)
    assert found.after.oldest_ms < 0.8 * found.before.oldest_ms
    assert p99_s(found.after) < 0.9 * p99_s(found.before)
    assert found.after.operations < 1.005 * found.before.operations


def test_txn_changes_of_units_with_many_lww_keys_have_their_share_of_the_turns() -> None:
    found = inherited()
    p99_s = worst_s(TXN, 0.99)
    assert p99_s(found.after) < 0.3 * p99_s(found.before)
    assert found.after.oldest_ms <= found.before.oldest_ms


@pytest.mark.parametrize("play", [keys_beside_txn, txn_beside_keys])
def test_turns_give_way_to_age_before_a_lane_is_four_hours_behind(play: Callable[[], Figures]) -> None:
    found = play()
    assert late(found.before) > 0
    assert late(found.after) == 0


@pytest.mark.parametrize("play", [keys_beside_txn, txn_beside_keys])
def test_no_alarm_is_raised_for_what_age_will_bring_before_the_others(play: Callable[[], Figures]) -> None:
    found = play()
    assert "forecast" in found.before.alerts
    assert "forecast" not in found.after.alerts


def test_a_storm_of_one_property_makes_the_others_wait_a_tenth_as_long() -> None:
    found = storm()
    assert others_mean_s(TXN)(found.after) < 0.1 * others_mean_s(TXN)(found.before)
    assert others_mean_s(LWW)(found.after) < 0.15 * others_mean_s(LWW)(found.before)


def test_what_the_others_have_early_costs_few_operations_and_their_time() -> None:
    """Their keys change again, and would have coalesced behind the storm."""
    found = storm()
    assert found.after.operations < 1.025 * found.before.operations
    assert found.after.drained_ms < 1.025 * found.before.drained_ms


def test_properties_take_no_turns_that_would_break_a_promise() -> None:
    found = storm_of_hours()
    assert late(found.before) == late(found.after) == 0
    assert others_mean_s(LWW)(found.after) < others_mean_s(LWW)(found.before)


@pytest.mark.parametrize("play", [storm, storm_of_hours, peak_of_properties])
def test_turns_of_properties_raise_no_alarm(play: Callable[[], Figures]) -> None:
    assert "forecast" not in play().after.alerts


def test_in_a_peak_of_many_properties_operations_and_drain_stay_as_they_are() -> None:
    found = peak_of_properties()
    assert found.after.operations < 1.001 * found.before.operations
    assert found.after.drained_ms < 1.001 * found.before.drained_ms
    assert found.after.oldest_ms < 1.3 * found.before.oldest_ms


def test_an_idle_oldhost_has_keys_early_at_the_price_of_some_operations() -> None:
    found = early()
    assert mean_s(LWW)(found.after) < 0.7 * mean_s(LWW)(found.before)
    assert found.before.operations < found.after.operations < 1.25 * found.before.operations
