"""Early: while OldHost is idle, a key that was quiet for long enough does not wait for the end of its debounce."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.machine import snapshot
from oldhost_sync.policy.tuning import WriterPolicy
from tests.unit.policy.play import START_MS, Play, sent

MINUTE_MS = 60_000
EARLY = WriterPolicy(early_send_ms=MINUTE_MS)


@pytest.fixture
def early() -> Play:
    """A machine that sends early, with an open session."""
    play = Play(EARLY)
    play.end_open()
    return play


def test_a_key_that_was_quiet_for_a_minute_goes_to_an_idle_oldhost(early: Play) -> None:
    early.take("LWW", "u")
    early.advance(MINUTE_MS - 1)
    assert sent(early) == []
    assert early.machine.wake_at_ms() == START_MS + MINUTE_MS
    early.advance(1)
    assert sent(early) == [(1,)]


def test_by_default_no_key_goes_early(play: Play) -> None:
    play.take("LWW", "u")
    play.advance(2 * MINUTE_MS - 1)
    assert sent(play) == []


def test_a_key_that_changed_again_is_not_quiet(early: Play) -> None:
    early.take("LWW", "u")
    early.advance(MINUTE_MS - 1)
    early.take("LWW", "u")
    early.advance(MINUTE_MS - 1)
    assert sent(early) == []
    early.advance(1)
    assert sent(early) == [(2,)]


def test_no_key_goes_early_while_something_is_on_its_way(early: Play) -> None:
    early.take("LWW", "u")
    early.take("TXN", "v")
    early.advance(MINUTE_MS)
    assert sent(early) == [(2,)]
    early.end_send(1)
    assert sent(early) == [(1,)]


def test_those_that_were_quiet_for_longest_go_first_and_no_more_than_a_send_at_a_time(early: Play) -> None:
    for number in range(10):
        early.take("LWW", f"u{number}")
        early.advance(1)
    early.advance(2 * MINUTE_MS - 100)
    assert sent(early) == [tuple(range(1, 9))]
    early.end_send(1)
    assert sent(early) == [(9, 10)]


def test_a_paused_writer_is_not_woken_for_it(early: Play) -> None:
    early.take("LWW", "u")
    early.pause_or_resume()
    early.advance(MINUTE_MS)
    assert sent(early) == []


def test_what_is_carried_into_a_new_run_goes_early_there(early: Play) -> None:
    early.take("LWW", "u")
    early.carry_over()
    early.advance(MINUTE_MS)
    assert sent(early) == [(1,)]


def test_a_key_that_goes_early_is_forecast_as_ready(early: Play) -> None:
    early.take("LWW", "u")
    early.advance(MINUTE_MS)
    early.fail_send(1, never_started=True)
    carried = snapshot.load(snapshot.dump(early.machine), EARLY, early.now_ms)
    for cls, ages in early.machine.coalescer.ages.items():
        assert list(ages.in_order()) == list(carried.coalescer.ages[cls].in_order())
