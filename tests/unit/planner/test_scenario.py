"""Scenarios: the peak half hour, arrival by arrival, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import pytest

from oldhost_sync.planner import Scenario, ScenarioError, arrivals
from oldhost_sync.planner.scenario import MEANINGS
from oldhost_sync.policy.changes import PriorityClass

PEAK = Scenario()


def test_every_figure_says_what_it_is() -> None:
    assert [*MEANINGS] == [*asdict(PEAK)]


def test_the_default_scenario_is_the_peak_of_the_brief() -> None:
    peak = arrivals(PEAK)
    by_class = Counter(change.priority_class for change in peak)
    assert by_class == {PriorityClass.LWW: 8_000, PriorityClass.TXN: 1_800, PriorityClass.EMERGENCY: 200}
    assert len({change.entity_id for change in peak if change.priority_class is PriorityClass.LWW}) == 2_500
    assert 0 <= peak[0].at_ms <= peak[-1].at_ms < 1_800_000


def test_the_same_seed_gives_the_same_arrivals_and_another_seed_others() -> None:
    assert arrivals(PEAK) == arrivals(PEAK)
    assert arrivals(PEAK) != arrivals(replace(PEAK, seed=2))


def test_bursts_come_at_their_rate() -> None:
    per_second = Counter(change.at_ms // 1000 for change in arrivals(PEAK))
    assert sum(count >= 290 for count in per_second.values()) == 8  # four bursts of two seconds


def test_arrivals_are_in_order_and_numbered_from_one() -> None:
    peak = arrivals(replace(PEAK, changes=1_000, bursts=0))
    assert [change.number for change in peak] == list(range(1, 1_001))
    assert [change.at_ms for change in peak] == sorted(change.at_ms for change in peak)


def test_steps_count_the_changes_of_a_key() -> None:
    steps: dict[Any, list[int]] = {}
    for change in arrivals(PEAK):
        steps.setdefault(change.key, []).append(change.step)
    assert all(found == list(range(len(found))) for found in steps.values())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"units": 0}, "units"),
        ({"changes": -1}, "changes"),
        ({"txn_share": 0.99}, "txn_share"),
        ({"max_wait_s": 1.0}, "max_wait_s"),
        ({"bursts": 40}, "burst_changes"),
        ({"duration_s": 5.0}, "burst_changes"),
        ({"ban_at_s": -1.0}, "ban_at_s"),
        ({"latency_ms": float("nan")}, "latency_ms"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused_with_the_figure_named(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        Scenario(**wrong)
