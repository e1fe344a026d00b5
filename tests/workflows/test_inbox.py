"""The inbox: order kept, one activity at it, and never more in one than Temporal takes."""

from __future__ import annotations

from workflows.inbox import BYTES_MAX, PER_ACTIVITY_MAX, Inbox
from workflows.messages import Submission


def submissions(count: int, size: int = 10) -> list[Submission]:
    return [Submission({"payload": "x" * size}, str(number)) for number in range(count)]


def test_batches_keep_the_order_and_their_limit() -> None:
    inbox, given = Inbox([]), submissions(PER_ACTIVITY_MAX + 1)
    for submission in given:
        inbox.add(submission)
    assert inbox.next_batch(draining=False) == given[:PER_ACTIVITY_MAX]
    inbox.recording = False
    assert inbox.next_batch(draining=False) == given[PER_ACTIVITY_MAX:]


def test_nothing_is_recorded_beside_a_batch_under_way() -> None:
    inbox = Inbox(submissions(PER_ACTIVITY_MAX + 1))
    inbox.next_batch(draining=False)
    assert inbox.next_batch(draining=False) == []
    assert len(inbox.carried()) == 1


def test_a_batch_stays_below_what_temporal_takes() -> None:
    inbox = Inbox(submissions(20, BYTES_MAX // 8))
    assert len(inbox.next_batch(draining=False)) == 7


def test_one_that_is_larger_than_a_batch_goes_alone() -> None:
    inbox = Inbox(submissions(2, BYTES_MAX + 1))
    assert len(inbox.next_batch(draining=False)) == 1


def test_before_a_new_run_only_what_it_cannot_be_given_is_recorded() -> None:
    few, many = Inbox(submissions(20)), Inbox(submissions(20, BYTES_MAX // 8))
    assert few.next_batch(draining=True) == []
    assert len(few.carried()) == 20
    assert len(many.next_batch(draining=True)) == 7


def test_the_size_is_that_of_the_json_which_is_sent() -> None:
    """A letter outside ASCII takes six bytes there."""
    inbox = Inbox([Submission({"payload": "é" * (BYTES_MAX // 12)}, str(number)) for number in range(3)])
    assert len(inbox.next_batch(draining=False)) == 1
