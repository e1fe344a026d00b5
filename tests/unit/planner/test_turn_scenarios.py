"""What each rule about turns is for, on a virtual clock: the decisions of release 4 beside those before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.planner.turn_scenarios import (
    LWW,
    TXN,
    Figures,
    early,
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
    worst_s,
)

pytestmark = pytest.mark.slow


def test_in_the_peak_a_key_that_changes_often_is_less_old_when_it_goes() -> None:
    found = peak()
    assert found.after.oldest_ms < 0.9 * found.before.oldest_ms


def test_the_peak_needs_no_more_operations_and_no_more_time_for_it() -> None:
    found = peak()
    assert found.after.operations <= found.before.operations
    assert found.after.drained_ms <= found.before.drained_ms


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
