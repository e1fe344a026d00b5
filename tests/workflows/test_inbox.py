"""The inbox: order kept, one activity at it, never more in one than Temporal takes, and nobody
waits for another's row."""

from __future__ import annotations

from typing import Any

from workflows.messages import Submission
from workflows.reception import BATCH_BYTES_MAX, BYTES_MAX, PER_ACTIVITY_MAX, RETRY_MS_MIN, Inbox


def submissions(count: int, size: int = 10) -> list[Submission]:
    return [Submission({"payload": "x" * size}, str(number)) for number in range(count)]


def of_units(*units: str) -> list[Submission]:
    return [Submission({"entity_type": "unit", "entity_id": unit}, str(number)) for number, unit in enumerate(units)]


def keys(batch: list[Submission]) -> list[str]:
    return [submission.fallback_key for submission in batch]


def test_batches_keep_the_order_and_their_limit() -> None:
    inbox, given = Inbox([]), submissions(PER_ACTIVITY_MAX + 1)
    for submission in given:
        inbox.add(submission)
    assert inbox.next_batch(draining=False) == given[:PER_ACTIVITY_MAX]
    inbox.recorded([], 0)
    assert inbox.next_batch(draining=False) == given[PER_ACTIVITY_MAX:]


def test_nothing_is_recorded_beside_a_batch_under_way() -> None:
    inbox = Inbox(submissions(PER_ACTIVITY_MAX + 1))
    inbox.next_batch(draining=False)
    assert inbox.next_batch(draining=False) == []


def test_what_is_under_way_is_carried_too_for_its_end_may_never_come() -> None:
    inbox, given = Inbox([]), submissions(PER_ACTIVITY_MAX + 1)
    for submission in given:
        inbox.add(submission)
    inbox.next_batch(draining=False)
    assert inbox.carried() == given


def test_a_batch_stays_far_below_what_temporal_takes() -> None:
    assert len(Inbox(submissions(20, BATCH_BYTES_MAX // 8)).next_batch(draining=False)) == 7


def test_one_that_is_larger_than_a_batch_goes_alone() -> None:
    assert len(Inbox(submissions(2, BATCH_BYTES_MAX + 1)).next_batch(draining=False)) == 1


def test_before_a_new_run_nothing_is_recorded() -> None:
    few, many = Inbox(submissions(20)), Inbox(submissions(20, BYTES_MAX // 8))
    assert few.next_batch(draining=True) == []
    assert many.next_batch(draining=True) == []


def test_what_is_too_large_to_be_carried_stays_behind_in_the_history() -> None:
    few, many = Inbox(submissions(20)), Inbox(submissions(20, BYTES_MAX // 8))
    assert len(few.carried() or []) == 20
    assert many.carried() is None


def test_the_size_is_that_of_the_json_which_is_sent() -> None:
    """A letter outside ASCII takes six bytes there."""
    inbox = Inbox([Submission({"payload": "é" * (BATCH_BYTES_MAX // 12)}, str(number)) for number in range(3)])
    assert len(inbox.next_batch(draining=False)) == 1


def test_what_was_left_waits_and_all_others_go_on() -> None:
    inbox = Inbox(of_units("a", "b"))
    inbox.next_batch(draining=False)
    inbox.recorded([0], 1_000)
    for submission in of_units("a", "c"):
        inbox.add(submission)
    assert keys(inbox.next_batch(draining=False, now_ms=1_500)) == ["1"]
    inbox.recorded([], 1_600)
    assert inbox.next_batch(draining=False, now_ms=1_700) == []
    assert inbox.retry_at_ms() == 1_000 + RETRY_MS_MIN


def test_what_was_left_goes_before_what_came_later_of_its_entity() -> None:
    given = of_units("a", "a")
    inbox = Inbox(given[:1])
    inbox.next_batch(draining=False)
    inbox.recorded([0], 0)
    inbox.add(given[1])
    assert inbox.next_batch(draining=False, now_ms=RETRY_MS_MIN) == given


def test_each_attempt_on_a_held_row_is_further_away_for_it_costs_history() -> None:
    inbox: Any = Inbox(of_units("a"))
    waits, now_ms = [], 0
    for _ in range(8):
        assert inbox.next_batch(draining=False, now_ms=now_ms)
        inbox.recorded([0], now_ms)
        waits.append(inbox.retry_at_ms() - now_ms)
        now_ms = inbox.retry_at_ms()
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_while_older_signals_are_looked_for_nothing_is_recorded() -> None:
    inbox = Inbox(submissions(1))
    inbox.awaits_older = True
    assert inbox.next_batch(draining=False) == []


def test_a_batch_that_came_to_no_end_waits_again_in_its_order() -> None:
    inbox, given = Inbox([]), submissions(60)
    for submission in given:
        inbox.add(submission)
    inbox.next_batch(draining=False)
    inbox.failed()
    assert inbox.carried() == given
