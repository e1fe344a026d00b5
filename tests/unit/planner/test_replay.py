"""Recorded changes, rehearsed again: in the order of their times, as the host is set but for what is given."""

from __future__ import annotations

import pytest

from oldhost_sync.planner import Scenario, ScenarioError, rehearse, replayed_arrivals, replayed_scenario
from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.tuning import WriterPolicy

BEGIN_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def states(*after_ms: int) -> list[ChangeRef]:
    """One unit's states, recorded at these times."""
    return [
        ChangeRef(number, PriorityClass.LWW, "unit", "A-1", "unit_status_changed", BEGIN_MS + at_ms)
        for number, at_ms in enumerate(after_ms, 41)
    ]


def scenario_with(**other: float) -> Scenario:
    changes = replayed_arrivals(states(0, MINUTE_MS), BEGIN_MS)
    return replayed_scenario(WriterPolicy(debounce_ms=90_000, max_wait_ms=300_000), 250.0, changes, other)


def test_what_was_recorded_arrives_again_at_its_time_in_the_order_of_times() -> None:
    late, early = states(MINUTE_MS, 0)
    assert [(each.number, each.at_ms) for each in replayed_arrivals([late, early], BEGIN_MS)] == [
        (42, 0),
        (41, MINUTE_MS),
    ]


def test_what_is_not_given_is_as_the_host_is_set() -> None:
    found = scenario_with(debounce_s=30.0)
    assert (found.debounce_s, found.max_wait_s, found.latency_ms, found.ban_at_s) == (30.0, 300.0, 250.0, None)


def test_settings_that_do_not_fit_those_of_the_host_are_refused() -> None:
    with pytest.raises(ScenarioError, match="max_wait_s is 300"):
        scenario_with(debounce_s=400.0)


def test_a_shorter_debounce_sends_more_of_the_same_changes() -> None:
    changes = replayed_arrivals(states(0, MINUTE_MS, 2 * MINUTE_MS), BEGIN_MS)
    sent = [rehearse(scenario_with(debounce_s=each), changes=changes).operations for each in (90.0, 30.0)]
    assert sent == [1, 3]


def test_a_plan_says_how_many_changes_it_rehearsed() -> None:
    plan = rehearse(Scenario(), changes=replayed_arrivals(states(0, 1, 2), BEGIN_MS))
    assert plan.figures()["changes"] == 3


def test_a_long_rehearsal_says_how_far_it_is() -> None:
    heard: list[int] = []
    rehearse(Scenario(changes=2_500, duration_s=600, bursts=0), progress=heard.append)
    assert heard == [500, 1_500, 2_500]
