"""Why nothing reaches OldHost, as the alert about a standstill tells it; and what a run without a past closes."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.machine import operators
from oldhost_sync.policy.machine.actions import RecordConditions
from oldhost_sync.policy.machine.events import OpeningFailed
from oldhost_sync.policy.machine.progress import NOT_RUN_MS
from oldhost_sync.policy.rules.alert_kinds import WRITER_KINDS
from oldhost_sync.policy.tuning import NO_PROGRESS_MS
from tests.unit.policy.play import Play


def standstills(play: Play) -> list[str]:
    return [alert.message for alert in play.alerts if alert.kind == "no-progress" and not alert.close]


def failed(play: Play, how: str = "") -> None:
    """A send that fails; the next session is not open yet."""
    play.take("TXN", "a")
    play.fail_send(1, never_started=how == "never started", silent=how == "silent")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("never started", "took no send in time"),
        ("silent", "gave no sign of life"),
        ("", "a send failed there"),
    ],
)
def test_a_send_that_fails_is_not_called_oldhosts_silence(play: Play, how: str, why: str) -> None:
    failed(play, how)
    play.advance(NO_PROGRESS_MS)
    (said,) = standstills(play)
    assert why in said


def test_an_opening_that_fails_says_why(play: Play) -> None:
    failed(play)
    play.under.opening = None
    play.machine.opening_ended(OpeningFailed("its worker gave no sign of life"), play.now_ms)
    play.advance(NO_PROGRESS_MS)
    (said,) = standstills(play)
    assert "opening a session failed: its worker gave no sign of life" in said


def test_time_in_which_nobody_ran_the_writer_is_no_standstill_of_its_own(play: Play) -> None:
    play.take("TXN", "a")
    play.advance(NO_PROGRESS_MS + NOT_RUN_MS + 1)
    assert standstills(play) == []
    play.advance(NO_PROGRESS_MS)
    assert len(standstills(play)) == 1


def test_a_standstill_that_is_looked_at_a_little_late_is_one(play: Play) -> None:
    play.take("TXN", "a")
    play.advance(NO_PROGRESS_MS + NOT_RUN_MS)
    assert len(standstills(play)) == 1


def test_a_standstill_that_is_told_stays_told_however_seldom_the_writer_looks(play: Play) -> None:
    failed(play)
    play.advance(NO_PROGRESS_MS)
    for _ in range(5):
        play.advance(NO_PROGRESS_MS + NOT_RUN_MS + 1)
    assert len(standstills(play)) == 1
    assert [alert for alert in play.alerts if alert.close] == []


def first_lists(*, lists_before: int) -> list[RecordConditions]:
    """What a run without a past records when a session opens; earlier runs have recorded so many lists."""
    play = Play()
    play.reports.number_above(lists_before)
    play.step()
    assert play.lists == []
    play.end_open()
    return play.lists


def test_a_run_without_a_past_closes_what_a_session_disproves() -> None:
    """A run that was terminated told nobody what it had opened. Whether a forecast still holds, is known later."""
    (report,) = first_lists(lists_before=7)
    assert (report.conditions, report.unknown) == ((), ("forecast",))


def test_the_first_run_of_all_has_nothing_to_close() -> None:
    assert first_lists(lists_before=0) == []


def test_it_does_so_once() -> None:
    play = Play()
    play.end_open()
    assert len(play.lists) == 1
    failed(play)
    play.end_open()
    assert len(play.lists) == 1


def test_a_run_without_a_past_leaves_open_what_it_can_not_judge_before_a_session_is_open() -> None:
    play = Play()
    operators.pause(play.machine, "ana", "a look")
    play.take("EMERGENCY", "a")
    (report,) = play.lists
    assert [each.cause for each in report.conditions] == ["emergencies:pause"]
    assert {*report.unknown} == {*WRITER_KINDS} - {"emergency-blocked"}


@pytest.mark.parametrize("stop", ["pause", "halt"])
def test_what_has_begun_during_the_opening_stays_open(stop: str) -> None:
    play = Play()
    play.take("EMERGENCY", "a")
    if stop == "pause":
        operators.pause(play.machine, "ana", "a look")
    else:
        play.machine.halt("a foreign write")
    play.step()
    play.end_open()
    assert f"emergencies:{stop}" in [each.cause for each in play.lists[-1].conditions]
