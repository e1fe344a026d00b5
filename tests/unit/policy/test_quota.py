"""A token's quota is there at once, comes again evenly, and is never more than a minute's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_sync.planner.scenario import Scenario, arrivals
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.rules.quota import EMERGENCIES_PER_MINUTE, Bucket


def test_a_minutes_worth_goes_at_once_and_no_more() -> None:
    bucket = Bucket(60, now=0)
    assert bucket.wait_for(60, 0) == 0
    bucket.take(60, 0)
    assert bucket.wait_for(1, 0) == 1


def test_it_comes_again_evenly_and_never_to_more_than_a_minutes_worth() -> None:
    bucket = Bucket(60, now=0)
    bucket.take(60, 0)
    assert bucket.wait_for(10, 10) == 0
    assert bucket.wait_for(11, 10) == 1
    assert bucket.wait_for(60, 3_600) == 0
    assert math.isinf(bucket.wait_for(61, 3_600))


def test_what_others_took_beyond_the_quota_is_waited_for() -> None:
    bucket = Bucket(60, now=0)
    bucket.take(60, 0)
    bucket.take_of_others(20, 0)
    assert bucket.wait_for(1, 0) == 21


def test_what_others_took_is_waited_for_a_minute_at_most() -> None:
    bucket = Bucket(60, now=0)
    bucket.take_of_others(1_000, 0)
    assert bucket.wait_for(1, 0) == 61


def test_who_hears_late_of_what_others_took_has_what_they_have() -> None:
    late, prompt = Bucket(60, now=0), Bucket(60, now=0)
    prompt.take(60, 0)
    for second in range(1, 59):
        prompt.take(1, second)
    late.take_of_others(60 + 58, 58)
    assert late.wait_for(1, 58) == prompt.wait_for(1, 58) == 1


def test_what_came_to_a_full_bucket_pays_for_others_once_and_for_a_minute_at_most() -> None:
    bucket = Bucket(60, now=0)
    bucket.take_of_others(60, 3_600)
    assert bucket.wait_for(60, 3_600) == 0
    bucket.take_of_others(60, 3_600)
    assert bucket.wait_for(1, 3_600) == 1


@pytest.mark.parametrize("peak", [Scenario(), Scenario(duration_s=33.0, bursts=0)], ids=["in half an hour", "in 33 s"])
def test_one_token_may_send_all_emergencies_of_the_peak(peak: Scenario) -> None:
    bucket = Bucket(EMERGENCIES_PER_MINUTE, now=0)
    for arrival in arrivals(peak):
        if arrival.priority_class is PriorityClass.EMERGENCY:
            assert bucket.wait_for(1, arrival.at_ms / 1000) == 0
            bucket.take(1, arrival.at_ms / 1000)


def test_none_is_no_limit() -> None:
    bucket = Bucket(0, now=0)
    bucket.take(10**9, 0)
    assert bucket.wait_for(10**9, 0) == 0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 40)), max_size=60))
def test_in_any_time_it_gives_a_minutes_worth_and_what_came_again(asked: list[tuple[float, int]]) -> None:
    bucket, now, given_out = Bucket(60, now=0), 0.0, 0
    for pause, count in asked:
        now += pause
        if bucket.wait_for(count, now) == 0:
            bucket.take(count, now)
            given_out += count
    assert given_out <= 60 + now + 1e-6
