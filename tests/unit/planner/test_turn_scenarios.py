"""What each rule about turns is for, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oldhost_sync.planner import Plan
from tests.unit.planner.turn_scenarios import (
    FIGURES,
    LWW,
    TXN,
    calm,
    early,
    hot,
    inherited,
    keys_beside_txn,
    late,
    lines,
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
PAGE = Path(__file__).parents[3] / "docs" / "decisions" / "turns.md"


@pytest.mark.parametrize("name", FIGURES)
def test_the_page_on_turns_tells_what_the_planner_says_today(name: str) -> None:
    play, figures = FIGURES[name]
    told = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {name} |")]
    assert told == list(lines(name, play(), figures))


@pytest.mark.parametrize("latency_ms", [400, 100, 20])
@pytest.mark.parametrize("units", [1, 2])
def test_one_busy_unit_drains_as_quickly_as_its_operations_can_follow_one_another(units: int, latency_ms: int) -> None:
    assert hot(units, latency_ms).drained_ratio < 1.05
    assert hot(units, latency_ms).drained_ms == hot(2_000, latency_ms).drained_ms


def test_in_the_peak_few_operations_more_than_needed_are_sent_and_no_key_is_old() -> None:
    found = peak()
    assert found.operations_ratio < 1.005
    assert found.drained_ratio < 1.04
    assert found.oldest_ms < 360_000


def test_where_few_units_change_often_and_most_seldom_no_key_is_older_than_ten_minutes_and_its_send() -> None:
    found = uneven()
    assert found.oldest_ms < 620_000
    assert worst_s(LWW, 0.99)(found) < 610


def test_txn_changes_of_units_with_many_lww_keys_have_their_share_of_the_turns() -> None:
    found = inherited()
    assert worst_s(TXN, 0.99)(found) < 50
    assert worst_s(LWW, 0.99)(found) < 4_300


@pytest.mark.parametrize("play", [keys_beside_txn, txn_beside_keys])
def test_turns_give_way_to_age_before_a_lane_is_four_hours_behind(play: Callable[[], Plan]) -> None:
    """By turns alone, 144 and 178 of them would be late."""
    assert late(play()) == 0


@pytest.mark.parametrize("play", [keys_beside_txn, txn_beside_keys, storm, storm_of_hours, peak_of_properties])
def test_no_alarm_is_raised_for_what_turns_and_age_will_bring_in_time(play: Callable[[], Plan]) -> None:
    assert "forecast" not in play().alerts


def test_a_storm_of_one_property_makes_the_others_wait_little() -> None:
    """In the order of their acceptance, their mean would be 286 and 1,620 s."""
    found = storm()
    assert others_mean_s(TXN)(found) < 7
    assert others_mean_s(LWW)(found) < 180


def test_what_the_others_have_early_costs_few_operations_and_their_time() -> None:
    """Their keys change again, and would have coalesced behind the storm."""
    found = storm()
    assert found.operations_ratio < 1.02
    assert found.drained_ratio < 1.03


def test_properties_take_no_turns_that_would_break_a_promise() -> None:
    found = storm_of_hours()
    assert late(found) == 0
    assert others_mean_s(LWW)(found) < 5_000


def test_in_a_peak_of_many_properties_operations_and_drain_stay_as_they_are() -> None:
    found, one = peak_of_properties(), peak()
    assert found.operations < 1.001 * one.operations
    assert found.drained_ms < 1.001 * one.drained_ms
    assert found.oldest_ms < 1.3 * one.oldest_ms


def test_an_idle_oldhost_has_keys_early_at_the_price_of_some_operations() -> None:
    before, after = calm(), early()
    assert mean_s(LWW)(after) < 0.7 * mean_s(LWW)(before)
    assert before.operations < after.operations < 1.25 * before.operations
