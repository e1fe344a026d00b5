"""What `status` says, word by word, as far as a person would be misled."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.machine import operators
from oldhost_sync.policy.machine.events import OpeningPostponed
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
    operators.pause(play.machine, "ana", "to see them wait")
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


def test_the_last_failure_is_told_while_the_next_session_is_opened(play: Play) -> None:
    play.take("TXN", "a")
    play.end_send(1, lambda _: Reply.LOST_BEFORE)
    told = set()
    for _ in range(5):
        assert play.under.opening is not None
        play.under.opening = None
        play.machine.opening_ended(OpeningPostponed(1_000, "connection"), play.now_ms)
        play.step()
        for ms in (0, 1_000):
            play.advance(ms)
            told.add(status_report.status(play.machine, "oldhost", play.now_ms)["session"]["waiting_for"])
    assert told == {"connection"}


def waits_for(play: Play, unit: str) -> str:
    (change,) = status_report.find(play.machine, EntityKey("unit", unit), play.now_ms)["changes"]
    return str(change["waits_for"])


def test_a_change_in_its_lane_waits_for_its_turn_and_one_on_its_way_for_an_answer(play: Play) -> None:
    for number in range(40):
        play.take("TXN", f"u{number}")
    assert waits_for(play, "u0") == "OldHost's answer"
    assert waits_for(play, "u39") == "its turn"


def test_while_nothing_is_sent_a_change_waits_for_what_ends_that(play: Play) -> None:
    operators.pause(play.machine, "ana", "quiet")
    play.take("EMERGENCY", "a")
    play.take("LWW", "b")
    assert waits_for(play, "a") == "somebody to resume"
    assert waits_for(play, "b") == "the debounce to end, somebody to resume"
    play.machine.banned(900_000, play.now_ms)
    play.machine.halt("nonces differ")
    assert waits_for(play, "a") == "a decision about the halt, somebody to resume, the ban to end"


def test_a_change_that_waits_apart_says_until_when(play: Play) -> None:
    change_id = play.take("LWW", "poison")
    play.take("TXN", "other")
    entity = EntityKey("unit", "poison")
    assert play.machine.coalescer.park(change_id, 1_700_000_015_000) == entity
    (found,) = status_report.find(play.machine, entity, play.now_ms)["changes"]
    assert found["waits_for"].startswith("the pause until 2023-11-14 22:13:35+00:00, since OldHost refused")
    assert status_report.status(play.machine, "oldhost", play.now_ms)["apart"] == 1
