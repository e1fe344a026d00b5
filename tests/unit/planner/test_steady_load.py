"""A steady load and the highest rate that can last, on a virtual clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from oldhost_sync.planner import Scenario, capacity, ceiling_per_s, steady
from oldhost_sync.planner.steady_load import try_rate
from oldhost_sync.policy.changes import PriorityClass

LWW, TXN, EMERGENCY = PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY
# A tenth of the peak, at an OldHost that takes ten times as long: the same rates of it, played ten times as quickly.
SMALL = Scenario(units=250, changes=1_000, bursts=0, latency_ms=4_000.0)


def test_what_cant_be_compressed_sets_the_ceiling() -> None:
    assert ceiling_per_s(Scenario()) == pytest.approx(12.5)
    assert ceiling_per_s(replace(Scenario(), txn_share=0.0, emergency_share=0.0)) == float("inf")


def test_a_steady_load_is_the_mix_at_its_rate() -> None:
    changes = steady(SMALL, 1.0, 7_200)
    assert len(changes) == 7_200
    assert Counter(one.priority_class for one in changes) == {LWW: 5_760, TXN: 1_296, EMERGENCY: 144}
    assert len({one.number for one in changes}) == len(changes)


def test_of_the_time_before_only_what_would_still_wait_is_there() -> None:
    before = [one for one in steady(SMALL, 1.0, 60, behind_s=10_800) if one.at_ms < 0]
    assert {one.priority_class for one in before} == {LWW, TXN}
    keys = Counter(one.key for one in before if one.priority_class is LWW)
    assert set(keys.values()) == {1}
    assert len(keys) == pytest.approx(SMALL.units, rel=0.02)


@pytest.mark.slow
def test_a_rate_below_the_capacity_is_kept_and_one_near_the_ceiling_is_not() -> None:
    low, high = (try_rate(SMALL, per_s) for per_s in (0.5, 1.24))
    assert low.kept
    assert low.oldest_ms[TXN] < 600_000
    assert not high.kept


@pytest.mark.slow
def test_the_search_ends_between_a_rate_that_is_kept_and_one_that_is_not() -> None:
    tried = list(capacity(SMALL, steps=4))
    kept = max(one.per_s for one in tried if one.kept)
    broken = min(one.per_s for one in tried if not one.kept)
    assert broken - kept == pytest.approx(ceiling_per_s(SMALL) / 16)
