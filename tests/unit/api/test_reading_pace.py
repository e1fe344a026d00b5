"""The pace at which one token reads."""

from __future__ import annotations

import asyncio

import pytest

from oldhost_sync.api import http_limits
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.quotas import ReadingPace

LIST, SIZE = "/api/outbox", 200_000


def a_pace(now: float = 0.0) -> ReadingPace:
    """One that knows what the list costs."""
    pace = ReadingPace(clock=lambda: now)
    _, reserved = pace.reserve("other", LIST)
    pace.answered("other", LIST, reserved, SIZE)
    return pace


def test_clients_in_a_loop_read_no_more_than_the_pace_however_many_they_are() -> None:
    pace = a_pace()
    waits = [pace.reserve("a", LIST)[0] for _ in range(500)]
    seconds = 10.0
    read = sum(wait <= seconds for wait in waits) * SIZE
    assert read <= (seconds + http_limits.READ_AHEAD_SECONDS) * http_limits.READ_BYTES_PER_SECOND + SIZE


def test_a_person_who_opens_pages_and_a_program_that_follows_the_feed_never_wait() -> None:
    now = 0.0
    pace = ReadingPace(clock=lambda: now)
    for _ in range(100):
        wait, reserved = pace.reserve("a", LIST)
        assert wait <= 0
        now += 0.25
        pace.answered("a", LIST, reserved, SIZE)


def test_what_a_request_did_not_need_is_given_back() -> None:
    pace = a_pace()
    for _ in range(1_000):
        wait, reserved = pace.reserve("a", LIST)
        assert wait <= 0
        pace.answered("a", LIST, reserved, 100)


def test_one_token_does_not_wait_for_another() -> None:
    pace = a_pace()
    for _ in range(500):
        pace.reserve("a", LIST)
    assert pace.reserve("b", LIST)[0] <= 0


def test_a_token_that_would_wait_for_long_is_refused_and_owes_nothing_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "READ_WAIT_SECONDS_MAX", 0.0)
    pace = a_pace()
    while pace.reserve("a", LIST)[0] <= 0:
        pass
    before, reserved = pace.reserve("a", LIST)
    with pytest.raises(Problem, match="reads too much") as refused:
        asyncio.run(pace.turn("a", LIST))
    assert int(refused.value.headers["Retry-After"]) > 0
    assert pace.reserve("a", LIST)[0] == pytest.approx(before + reserved / http_limits.READ_BYTES_PER_SECOND)


def test_paths_with_ids_do_not_pile_up() -> None:
    pace = ReadingPace(clock=lambda: 0.0)
    for number in range(http_limits.READ_COSTS_KEPT + 50):
        _, reserved = pace.reserve("a", f"/api/units/{number}")
        pace.answered("a", f"/api/units/{number}", reserved, 10)
    assert len(pace._costs) == http_limits.READ_COSTS_KEPT
