"""What the times of an exchange say about how long OldHost took."""

from __future__ import annotations

import pytest

from oldhost_sync.oldhost.answer_times import AnswerTime


@pytest.mark.parametrize(
    ("listened", "worked", "heard", "came", "at", "seconds", "at_least"),
    [
        (0.3, 0.35, 0.36, True, 0.3, 0.3, 0.3),
        (0.3, 0.35, 0.4, False, 0.4, 0.4, 0.4),
        (0.3, 0.5, 0.5005, False, 0.5005, None, 0.3),
        (None, 0.2, 0.4, False, 0.4, 0.4, 0.4),
        (None, 0.2, 0.2005, False, 0.2005, None, None),
    ],
    ids=[
        "it came while it was listened for",
        "it came after the work",
        "it came at some time during the work",
        "it came after the work, and nobody listened before",
        "it came at some time after the writing",
    ],
)
def test_how_long_an_answer_took_is_known_if_somebody_listened(
    listened: float | None,
    worked: float,
    heard: float,
    came: bool,
    at: float,
    seconds: float | None,
    at_least: float | None,
) -> None:
    time = AnswerTime(0.0, listened, worked, heard, came)
    assert (time.at, time.seconds, time.seconds_at_least) == (at, seconds, at_least)
