"""The rehearsal: what runs, on a virtual clock; its predictions obey the arithmetic of the peak."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from oldhost_sync.planner import Arrival, Pace, Plan, Scenario, arrivals, quantile, rehearse
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.forecast.forecast import OPENING_READS

PEAK = Scenario()
SMALL = Scenario(units=100, changes=400, duration_s=300, bursts=0)


@pytest.fixture(scope="module")
def peak() -> Plan:
    return rehearse(PEAK)


@pytest.fixture(scope="module")
def peak_with_ban() -> Plan:
    return rehearse(replace(PEAK, ban_at_s=900.0))


def test_the_peak_needs_hardly_more_operations_than_an_oracle(peak: Plan, peak_with_ban: Plan) -> None:
    assert peak.bounds.operations == peak_with_ban.bounds.operations == 4_500
    assert peak.operations_ratio <= 1.02
    assert peak_with_ban.operations_ratio <= 1.02


def test_the_peak_drains_hardly_later_than_an_oracle(peak: Plan, peak_with_ban: Plan) -> None:
    assert 1 <= peak.drained_ratio <= 1.05
    assert 1 <= peak_with_ban.drained_ratio <= 1.05


def test_every_emergency_and_txn_is_sent_and_every_change_has_a_fate(peak_with_ban: Plan) -> None:
    assert peak_with_ban.by_class[PriorityClass.EMERGENCY] == 200
    assert peak_with_ban.by_class[PriorityClass.TXN] == 1_800
    assert peak_with_ban.operations + peak_with_ban.superseded == 10_000


def test_oldhost_never_waits_for_us_while_something_can_go(peak: Plan) -> None:
    assert peak.busy_share_of_backlog >= 0.99


def test_emergencies_keep_their_promise_outside_the_ban(peak: Plan, peak_with_ban: Plan) -> None:
    assert (quantile(peak.emergencies_ms, 0.99) or 0) < 30_000
    assert (quantile(peak_with_ban.emergencies_outside_ban_ms, 0.99) or 0) < 30_000


def test_no_emergency_reaches_oldhost_during_a_ban(peak_with_ban: Plan) -> None:
    assert max(peak_with_ban.emergencies_ms) > 800_000
    assert peak_with_ban.alerts["emergency-blocked"] == 1


def test_a_ban_costs_its_length_and_little_more(peak: Plan, peak_with_ban: Plan) -> None:
    cost_ms = peak_with_ban.drained_ms - peak.drained_ms
    assert 850_000 < cost_ms < 960_000


def test_what_a_ban_refused_goes_as_soon_as_the_session_is_open_again() -> None:
    """OldHost does not apply late what it refused, so the opening waits for its two readings only."""
    scenario = replace(SMALL, ban_at_s=100.0, ban_s=60.0)
    refused = Arrival(1, 101_000, PriorityClass.EMERGENCY, "lock", "L1", "lock_emergency")
    pace = Pace(turnaround_ms=0)
    plan = rehearse(scenario, pace, [refused])
    until_over_ms = 160_000 + pace.ban_margin_ms - refused.at_ms
    ours_ms = 2 * (pace.dispatch_ms + pace.report_ms)
    assert plan.emergencies_ms[0] - until_over_ms <= ours_ms + (OPENING_READS + 1) * scenario.latency_ms


def test_the_ban_shows_in_the_samples(peak_with_ban: Plan) -> None:
    banned = [sample.at_ms for sample in peak_with_ban.samples if sample.banned]
    assert min(banned) >= 900_000
    assert max(banned) < 1_800_000


def test_a_rehearsal_is_repeatable() -> None:
    assert rehearse(SMALL) == rehearse(SMALL)


def test_a_load_above_capacity_is_said_not_to_drain_in_time() -> None:
    plan = rehearse(replace(SMALL, changes=3_000, txn_share=0.98, emergency_share=0.02, latency_ms=60_000.0))
    assert not plan.drained
    assert not plan.figures()["drained"]


def test_a_plan_of_given_changes_plays_those() -> None:
    plan = rehearse(SMALL, changes=_only(PriorityClass.TXN, arrivals(SMALL)))
    assert plan.operations == plan.by_class[PriorityClass.TXN] == plan.bounds.operations


def test_quantiles_are_values_that_occurred() -> None:
    assert quantile([5, 1, 3], 0.5) == 3
    assert quantile(range(1, 101), 0.99) == 99
    assert quantile([7], 0.99) == 7
    assert quantile([], 0.5) is None


def _only(cls: PriorityClass, changes: Iterable[Arrival]) -> list[Arrival]:
    return [change for change in changes if change.priority_class is cls]
