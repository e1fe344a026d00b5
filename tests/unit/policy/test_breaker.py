"""The breaker: its table, and that it asks before it closes (trap 5)."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.machine.breaker import Breaker, BreakerState, IllegalTransition

BAN_MS = 900_000
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def banned(now_ms: int = NOW_MS) -> Breaker:
    breaker = Breaker(BAN_MS)
    breaker.ban(now_ms, BAN_MS)
    return breaker


def test_a_ban_opens_it() -> None:
    assert banned().state is BreakerState.OPEN


def test_it_stays_open_until_the_ban_is_over() -> None:
    breaker = banned()
    breaker.tick(NOW_MS + BAN_MS - 1)
    assert breaker.state is BreakerState.OPEN
    assert not breaker.lets_ask


def test_trap_05_it_asks_before_it_closes() -> None:
    breaker = banned()
    breaker.tick(NOW_MS + BAN_MS)
    states = [breaker.state]
    assert breaker.lets_ask
    breaker.agreed()
    states.append(breaker.state)
    assert states == [BreakerState.HALF_OPEN, BreakerState.CLOSED]


def test_a_ban_that_still_runs_opens_it_again_and_counts_as_the_same() -> None:
    breaker = banned()
    breaker.tick(NOW_MS + BAN_MS)
    assert breaker.ban(NOW_MS + BAN_MS, 5_000) is False
    assert breaker.state is BreakerState.OPEN
    assert breaker.until_ms == NOW_MS + BAN_MS + 5_000


def test_a_shorter_answer_does_not_shorten_a_ban() -> None:
    breaker = banned()
    breaker.ban(NOW_MS + 1_000, 2_000)
    assert breaker.until_ms == NOW_MS + BAN_MS


@pytest.mark.parametrize(("after_ms", "again"), [(HOUR_MS - 1, True), (HOUR_MS, False)])
def test_a_second_ban_is_one_within_the_hour(after_ms: int, again: bool) -> None:
    breaker = banned()
    breaker.tick(NOW_MS + BAN_MS)
    breaker.agreed()
    assert breaker.ban(NOW_MS + after_ms, BAN_MS) is again


def loaded(left_ms: int) -> Breaker:
    breaker = Breaker(BAN_MS)
    breaker.load_ban(left_ms, NOW_MS)
    breaker.tick(NOW_MS)
    return breaker


@pytest.mark.parametrize("left_ms", [0, -1, -BAN_MS, BAN_MS - HOUR_MS + 1])
def test_what_oldhost_says_first_is_of_the_ban_that_an_earlier_run_left(left_ms: int) -> None:
    """MariaDB's clock may say that it is over: it may have been set."""
    breaker = loaded(left_ms)
    assert breaker.ban(NOW_MS, 60_000) is False
    assert (breaker.state, breaker.until_ms) == (BreakerState.OPEN, NOW_MS + 60_000)


def test_once_oldhost_agreed_the_next_ban_is_a_second_one() -> None:
    breaker = loaded(-60_000)
    breaker.agreed()
    assert breaker.ban(NOW_MS, BAN_MS) is True


def test_a_ban_that_an_earlier_run_left_counts_for_an_hour() -> None:
    breaker = loaded(BAN_MS - HOUR_MS)
    assert breaker.state is BreakerState.CLOSED
    assert breaker.ban(NOW_MS, BAN_MS) is False


def test_a_halt_ends_only_by_an_operator() -> None:
    breaker = banned()
    breaker.halt("a foreign write")
    breaker.tick(NOW_MS + 10 * BAN_MS)
    assert breaker.state is BreakerState.HALTED
    assert not breaker.lets_ask


def test_resolving_asks_at_once_when_no_ban_is_left() -> None:
    breaker = Breaker(BAN_MS)
    breaker.halt("a foreign write")
    breaker.resolve(NOW_MS)
    assert breaker.state is BreakerState.HALF_OPEN


def test_resolving_waits_for_what_is_left_of_a_ban() -> None:
    breaker = banned()
    breaker.halt("a second ban")
    breaker.resolve(NOW_MS + 1_000)
    assert breaker.state is BreakerState.OPEN
    assert breaker.until_ms == NOW_MS + BAN_MS


def test_after_resolving_the_hour_begins_anew() -> None:
    breaker = banned()
    breaker.halt("a second ban")
    breaker.resolve(NOW_MS + BAN_MS)
    breaker.agreed()
    assert breaker.ban(NOW_MS + BAN_MS + 1, BAN_MS) is False


def test_an_illegal_event_raises_and_changes_nothing() -> None:
    breaker = banned()
    with pytest.raises(IllegalTransition, match="agreed is not possible while the breaker is OPEN"):
        breaker.agreed()
    assert breaker.state is BreakerState.OPEN


def test_resolving_what_is_not_halted_raises() -> None:
    with pytest.raises(IllegalTransition):
        Breaker(BAN_MS).resolve(NOW_MS)


def test_a_ban_that_never_ends_is_asked_about_again_and_believed_when_it_is_shorter() -> None:
    breaker = Breaker(BAN_MS)
    breaker.ban(0, 24 * 3_600_000)
    assert BAN_MS < breaker.ask_at_ms < BAN_MS * 1.1
    breaker.tick(breaker.ask_at_ms)
    assert breaker.lets_ask
    breaker.ban(BAN_MS, 60_000)
    assert breaker.until_ms == BAN_MS + 60_000


def test_a_ban_of_the_usual_length_is_waited_out() -> None:
    breaker = Breaker(BAN_MS)
    breaker.ban(0, BAN_MS + 500)
    assert breaker.ask_at_ms == BAN_MS + 500
