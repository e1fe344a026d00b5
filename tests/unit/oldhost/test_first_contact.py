"""What is known of the first answer: by openings that follow one another here, without a session."""

from __future__ import annotations

from oldhost_sync.oldhost.expected_nonce import STALE_SECONDS_MAX, FirstContact


def reached_in(epoch: int, at: float) -> FirstContact:
    known = FirstContact()
    known.opening(epoch)
    known.answered(at)
    return known


def test_the_first_answer_counts() -> None:
    known = reached_in(1, 10.0)
    known.opening(2)
    known.answered(12.0)
    assert known.late_for(4.0, 12.0) == 2.0


def test_what_was_seen_before_somebody_elses_opening_is_forgotten() -> None:
    known = reached_in(1, 10.0)
    known.opening(3)
    known.answered(12.0)
    assert known.late_for(4.0, 12.0) == 4.0


def test_an_operation_that_is_written_begins_anew() -> None:
    known = reached_in(1, 10.0)
    known.forget()
    known.opening(2)
    known.answered(12.0)
    assert known.late_for(4.0, 12.0) == 4.0


def test_where_nobody_has_answered_since_all_of_it_is_to_come() -> None:
    known = reached_in(1, 10.0)
    known.forget()
    assert known.late_for(4.0, 60.0) == 4.0


def test_long_after_the_first_answer_nothing_is_late() -> None:
    assert reached_in(1, 10.0).late_for(4.0, 60.0) == 0.0


def test_a_smaller_reading_than_the_one_told_is_an_older_answer_for_a_minute_and_then_believed() -> None:
    known = FirstContact()
    known.answered(10.0, 504)
    known.answered(30.0, 504)
    assert "OldHost told the expected nonce 504, and now 501" in known.staler_than_told(501, 10.0 + STALE_SECONDS_MAX)
    assert known.staler_than_told(501, 10.1 + STALE_SECONDS_MAX) == ""
    assert known.staler_than_told(504, 11.0) == ""


def test_after_an_operation_is_written_any_reading_is_believed() -> None:
    known = FirstContact()
    known.answered(10.0, 504)
    known.forget()
    assert known.staler_than_told(501, 11.0) == ""
