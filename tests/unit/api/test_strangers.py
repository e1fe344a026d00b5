"""The pace at which requests without a token are answered."""

from __future__ import annotations

from oldhost_sync.api import http_limits
from oldhost_sync.api.quotas import AnonymousRateLimit


def test_so_many_are_answered_at_once_and_then_each_waits_for_its_turn() -> None:
    pace = AnonymousRateLimit(clock=lambda: 0.0)
    waits = [pace.wait_of("a") for _ in range(http_limits.STRANGERS_AT_ONCE + 3)]
    assert max(waits[: http_limits.STRANGERS_AT_ONCE]) < 1e-9
    assert [round(wait * http_limits.STRANGERS_PER_SECOND) for wait in waits[-3:]] == [1, 2, 3]


def test_nobody_waits_longer_than_the_limit_however_many_have_asked() -> None:
    pace = AnonymousRateLimit(clock=lambda: 0.0)
    assert max(pace.wait_of("a") for _ in range(10_000)) == http_limits.STRANGER_WAIT_SECONDS_MAX


def test_a_storm_that_is_over_is_forgotten_within_seconds() -> None:
    now = 0.0
    pace = AnonymousRateLimit(clock=lambda: now)
    for _ in range(10_000):
        pace.wait_of("a")
    now = http_limits.STRANGER_WAIT_SECONDS_MAX + http_limits.STRANGERS_AT_ONCE / http_limits.STRANGERS_PER_SECOND
    assert pace.wait_of("a") < 0


def test_another_address_waits_for_none_of_it() -> None:
    pace = AnonymousRateLimit(clock=lambda: 0.0)
    for _ in range(10_000):
        pace.wait_of("a")
    assert pace.wait_of("b") < 0
