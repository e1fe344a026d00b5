"""The breaker: its table, and that it asks before it closes (trap 5)."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.machine.events import SessionOpened
from oldhost_sync.policy.machine.session import BreakerState, Event, HostLink, IllegalTransition

BAN_MS = 900_000
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def banned(now_ms: int = NOW_MS) -> HostLink:
    link = HostLink(BAN_MS)
    link.banned(now_ms, BAN_MS)
    return link


def agree(link: HostLink) -> None:
    """A session opens, so OldHost agrees with the ledger, and ends."""
    link.move(Event.REQUESTED)
    link.opened(SessionOpened(1, "queue", 1))
    link.ended(Event.ENDED)


def test_a_ban_opens_it() -> None:
    assert banned().breaker.state is BreakerState.OPEN


def test_it_stays_open_until_the_ban_is_over() -> None:
    link = banned()
    link.tick(NOW_MS + BAN_MS - 1)
    assert link.breaker.state is BreakerState.OPEN
    assert not link.may_open(NOW_MS)


def test_trap_05_it_asks_before_it_closes() -> None:
    link = banned()
    link.tick(NOW_MS + BAN_MS)
    states = [link.breaker.state]
    assert link.may_open(NOW_MS)
    agree(link)
    states.append(link.breaker.state)
    assert states == [BreakerState.HALF_OPEN, BreakerState.CLOSED]


def test_a_ban_that_still_runs_opens_it_again_and_counts_as_the_same() -> None:
    link = banned()
    link.tick(NOW_MS + BAN_MS)
    assert link.banned(NOW_MS + BAN_MS, 5_000) is False
    assert link.breaker.state is BreakerState.OPEN
    assert link.breaker.until_ms == NOW_MS + BAN_MS + 5_000


def test_a_shorter_answer_does_not_shorten_a_ban() -> None:
    link = banned()
    link.banned(NOW_MS + 1_000, 2_000)
    assert link.breaker.until_ms == NOW_MS + BAN_MS


@pytest.mark.parametrize(("after_ms", "again"), [(HOUR_MS - 1, True), (HOUR_MS, False)])
def test_a_second_ban_is_one_within_the_hour(after_ms: int, again: bool) -> None:
    link = banned()
    link.tick(NOW_MS + BAN_MS)
    agree(link)
    assert link.banned(NOW_MS + after_ms, BAN_MS) is again


def loaded(left_ms: int) -> HostLink:
    link = HostLink(BAN_MS)
    link.load_ban(left_ms, NOW_MS)
    link.tick(NOW_MS)
    return link


@pytest.mark.parametrize("left_ms", [0, -1, -BAN_MS, BAN_MS - HOUR_MS + 1])
def test_what_oldhost_says_first_is_of_the_ban_that_an_earlier_run_left(left_ms: int) -> None:
    """MariaDB's clock may say that it is over: it may have been set."""
    link = loaded(left_ms)
    assert link.banned(NOW_MS, 60_000) is False
    assert (link.breaker.state, link.breaker.until_ms) == (BreakerState.OPEN, NOW_MS + 60_000)


def test_once_oldhost_agreed_the_next_ban_is_a_second_one() -> None:
    link = loaded(-60_000)
    agree(link)
    assert link.banned(NOW_MS, BAN_MS) is True


def test_a_ban_that_an_earlier_run_left_counts_for_an_hour() -> None:
    link = loaded(BAN_MS - HOUR_MS)
    assert link.breaker.state is BreakerState.CLOSED
    assert link.banned(NOW_MS, BAN_MS) is False


def test_a_halt_ends_only_by_an_operator() -> None:
    link = banned()
    link.halt("a foreign write")
    link.tick(NOW_MS + 10 * BAN_MS)
    assert link.breaker.state is BreakerState.HALTED
    assert not link.may_open(NOW_MS)


def test_resolving_asks_at_once_when_no_ban_is_left() -> None:
    link = HostLink(BAN_MS)
    link.halt("a foreign write")
    link.resolve(NOW_MS)
    assert link.breaker.state is BreakerState.HALF_OPEN


def test_resolving_waits_for_what_is_left_of_a_ban() -> None:
    link = banned()
    link.halt("a second ban")
    link.resolve(NOW_MS + 1_000)
    assert link.breaker.state is BreakerState.OPEN
    assert link.breaker.until_ms == NOW_MS + BAN_MS


def test_after_resolving_the_hour_begins_anew() -> None:
    link = banned()
    link.halt("a second ban")
    link.resolve(NOW_MS + BAN_MS)
    agree(link)
    assert link.banned(NOW_MS + BAN_MS + 1, BAN_MS) is False


def test_an_illegal_event_raises_and_changes_nothing() -> None:
    link = banned()
    with pytest.raises(IllegalTransition, match="requested is not possible while the session is none and the breaker"):
        agree(link)
    assert link.breaker.state is BreakerState.OPEN


def test_resolving_what_is_not_halted_raises() -> None:
    with pytest.raises(IllegalTransition):
        HostLink(BAN_MS).resolve(NOW_MS)


def test_a_ban_that_never_ends_is_asked_about_again_and_believed_when_it_is_shorter() -> None:
    link = HostLink(BAN_MS)
    link.banned(0, 24 * 3_600_000)
    assert BAN_MS < link.ask_at_ms < BAN_MS * 1.1
    link.tick(link.ask_at_ms)
    assert link.may_open(NOW_MS)
    link.banned(BAN_MS, 60_000)
    assert link.breaker.until_ms == BAN_MS + 60_000


def test_a_ban_of_the_usual_length_is_waited_out() -> None:
    link = HostLink(BAN_MS)
    link.banned(0, BAN_MS + 500)
    assert link.ask_at_ms == BAN_MS + 500
