"""A host that refuses, bans for longer than is configured, or contradicts itself: what the machine does and tells."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.machine.events import OpeningPostponed
from oldhost_sync.policy.machine.progress import BROKEN_SESSIONS, BROKEN_SESSIONS_MS, LostAnswers
from oldhost_sync.policy.tuning import REOPEN_MS_MAX
from tests.unit.policy.play import Play
from tests.unit.policy.test_machine import BAN_MS, closed, told
from tests.workflows.books import Reply


def test_in_a_ban_longer_than_the_setting_oldhost_is_asked_each_time_the_setting_is_over(play: Play) -> None:
    play.take("TXN", "a")
    play.end_send(1, lambda _: Reply.BAN)
    play.advance(BAN_MS)
    play.under.opening = None
    play.machine.opening_ended(OpeningPostponed(3 * BAN_MS, "ban"), play.now_ms)
    play.step()
    assert play.machine.blocked_ms(play.now_ms) == 3 * BAN_MS
    asking = []
    for wait_ms in (BAN_MS, BAN_MS * 5 // 100):
        play.advance(wait_ms)
        asking.append(play.under.opening is not None)
    assert asking == [False, True]
    assert play.machine.blocked_ms(play.now_ms) > BAN_MS


@pytest.mark.parametrize("reason", ["credentials", "refused", "unreadable"])
def test_however_many_workers_take_turns_a_host_that_refuses_is_asked_six_times_a_minute(
    play: Play, reason: str
) -> None:
    """Each worker's first pause is a second."""
    play.take("TXN", "a")
    play.end_send(1, lambda _: Reply.LOST_BEFORE)
    play.advance(REOPEN_MS_MAX)
    began, asked = play.now_ms, 0
    while play.now_ms < began + 60_000:
        if play.under.opening is not None:
            asked += 1
            play.under.opening = None
            play.machine.opening_ended(OpeningPostponed(1_000, reason, "status 401"), play.now_ms)
            play.step()
        play.advance(500)
    assert asked == 6
    assert "status 401" in play.machine.progress.reason


def test_gaps_that_are_none_are_told_though_each_change_gets_its_fate_in_between(play: Play) -> None:
    gap = "OldHost calls nonce 501 a gap: it expects 501"
    for _ in range(BROKEN_SESSIONS):
        play.now_ms += 60_000
        play.machine.lost_answers.note_session("gap", gap, play.now_ms)
        play.machine.lost_answers.note_session("", "", play.now_ms + 1)
    play.step()
    (text,) = told(play, "sessions-broken")
    assert gap in text
    play.advance(BROKEN_SESSIONS_MS - 1)
    assert "sessions-broken" not in closed(play)
    play.advance(1)
    assert "sessions-broken" in closed(play)


def test_sessions_that_break_now_and_then_or_by_a_ban_are_no_alert() -> None:
    answers = LostAnswers()
    for number in range(3 * BROKEN_SESSIONS):
        answers.note_session("gap", "now and then", number * BROKEN_SESSIONS_MS // 3)
        answers.note_session("banned", "OldHost bans us", number * BROKEN_SESSIONS_MS // 3)
    assert answers.broken_until_ms == 0
