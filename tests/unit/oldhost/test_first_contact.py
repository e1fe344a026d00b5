"""What is known of the first answer: by openings that follow one another here, without a session."""

from __future__ import annotations

from oldhost_sync.oldhost.first_contact import FirstContact


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
