"""How long before the expected answer the next operation is marked."""

import pytest

from oldhost_sync.oldhost.answer_times import TRANSACTIONS, MarkTime
from oldhost_sync.oldhost.session_limits import SessionLimits

MARGIN = 0.01
LIMITS = SessionLimits(mark_margin_seconds=MARGIN, send_within_seconds=1.0)


def used_to(*answers: float, transactions: tuple[float, ...] = ()) -> MarkTime:
    mark_time = MarkTime(LIMITS)
    for each in answers:
        mark_time.answered(each)
    for each in transactions:
        mark_time.marked(each)
    return mark_time


def test_with_no_answer_known_the_next_operation_is_marked_at_once() -> None:
    assert used_to().wait_seconds == 0


@pytest.mark.parametrize("seconds", [0.0, MARGIN, 1.9 * MARGIN])
def test_behind_a_host_little_slower_than_the_margin_it_is_marked_at_once(seconds: float) -> None:
    assert used_to(seconds).wait_seconds == 0


def test_it_is_marked_a_margin_before_the_expected_answer() -> None:
    assert used_to(0.4).wait_seconds == pytest.approx(0.4 - MARGIN)


def test_where_transactions_are_slow_the_margin_is_larger() -> None:
    mark_time = used_to(0.4, transactions=(0.03,))
    assert mark_time.wait_seconds == pytest.approx(0.4 - MARGIN - TRANSACTIONS * 0.03)


def test_a_mark_is_never_so_early_that_it_must_be_renewed() -> None:
    assert used_to(60.0, transactions=(5.0,)).wait_seconds == pytest.approx(60.0 - LIMITS.send_within_seconds / 2)


def test_a_quicker_answer_counts_at_once() -> None:
    assert used_to(0.4, 0.4, 0.2).wait_seconds == pytest.approx(0.2 - MARGIN)


def test_a_slower_answer_counts_little_and_many_of_them_in_the_end() -> None:
    once, often = used_to(0.2, 0.4), used_to(0.2, *[0.4] * 60)
    assert once.wait_seconds == pytest.approx(0.22 - MARGIN)
    assert often.wait_seconds == pytest.approx(0.4 - MARGIN, abs=0.001)


def test_a_quicker_transaction_counts_little_and_many_of_them_in_the_end() -> None:
    once, often = used_to(0.4, transactions=(0.05, 0.0)), used_to(0.4, transactions=(0.05, *[0.0] * 60))
    assert once.wait_seconds == pytest.approx(0.4 - MARGIN - TRANSACTIONS * 0.045)
    assert often.wait_seconds == pytest.approx(0.4 - MARGIN, abs=0.001)
