"""What `status` says, word by word, as far as a person would be misled."""

from __future__ import annotations

import pytest

from tests.unit.policy.play import Play
from tests.workflows.books import SETTLE_MS, Reply
from workflows import status_report


@pytest.fixture
def play() -> Play:
    """A machine with an open session."""
    play = Play()
    play.end_open()
    return play


def test_a_lanes_age_is_that_of_its_oldest_change_even_if_its_entity_is_busy(play: Play) -> None:
    for unit in ("a", "b", "a", "b"):
        play.take("TXN", unit)
    play.advance(7_000)
    play.take("TXN", "c")
    lane = status_report.status(play.machine, "oldhost", play.now_ms)["lanes"]["TXN"]
    assert lane == {"depth": 3, "oldest_age_ms": 7_000}


def test_an_lww_lanes_age_is_not_that_of_its_first_to_go(play: Play) -> None:
    """A key that went on changing waited longer than one that fell due before it."""
    play.machine.operators.pause("ana", "to see them wait")
    play.take("LWW", "often")
    play.advance(60_000)
    play.take("LWW", "once")
    play.advance(60_000)
    play.take("LWW", "often")
    play.advance(120_000)
    assert status_report.status(play.machine, "oldhost", play.now_ms)["lanes"]["LWW"]["oldest_age_ms"] == 240_000


def test_a_session_that_is_lost_is_not_sending(play: Play) -> None:
    play.take("TXN", "a")
    play.take("TXN", "b")
    play.end_send(1, lambda _: Reply.LOST_BEFORE)
    assert play.machine.session.lost
    assert status_report.state(play.machine) == "CONNECTING"


def test_a_writer_that_is_about_to_begin_anew_says_so(play: Play) -> None:
    play.machine.draining = True
    assert status_report.state(play.machine) == "RENEWING"


def test_what_a_session_waited_for_is_told_only_while_it_waits(play: Play) -> None:
    play.take("TXN", "a")
    play.end_send(1, lambda _: Reply.LOST_BEFORE)
    play.end_open()
    assert status_report.status(play.machine, "oldhost", play.now_ms)["session"]["waiting_for"] == "settle"
    play.advance(SETTLE_MS)
    assert status_report.status(play.machine, "oldhost", play.now_ms)["session"]["waiting_for"] == ""
