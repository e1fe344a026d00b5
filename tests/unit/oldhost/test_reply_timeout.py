"""How long a reply is waited for, by what this host's answers took."""

import pytest

from oldhost_sync.oldhost.answer_times import (
    FACTOR,
    HALF_LIFE,
    KNOWN_AFTER,
    LEAST_SECONDS,
    MARGIN_SECONDS,
    ReplyTimeout,
)

MOST = 5.0
SLOW = 2.0


def used_to(seconds: float, operations: int = KNOWN_AFTER) -> ReplyTimeout:
    reply_timeout = ReplyTimeout()
    answer(reply_timeout, seconds, operations)
    return reply_timeout


def answer(reply_timeout: ReplyTimeout, seconds: float, operations: int) -> None:
    for _ in range(operations):
        reply_timeout.answered(seconds, operation=True)


def test_before_enough_is_known_it_waits_the_request_timeout() -> None:
    reply_timeout = used_to(0.1, KNOWN_AFTER - 1)
    assert reply_timeout.wait_seconds(MOST) == MOST
    answer(reply_timeout, 0.1, 1)
    assert reply_timeout.wait_seconds(MOST) < MOST


def test_questions_are_no_operations_however_many_are_answered() -> None:
    reply_timeout = ReplyTimeout()
    for _ in range(10 * KNOWN_AFTER):
        reply_timeout.answered(0.1, operation=False)
    assert reply_timeout.wait_seconds(MOST) == MOST


def test_it_waits_some_times_as_long_as_the_slowest_answer_took() -> None:
    assert used_to(0.4).wait_seconds(MOST) == pytest.approx(FACTOR * 0.4 + MARGIN_SECONDS)


def test_a_very_quick_host_is_given_time_all_the_same() -> None:
    assert used_to(0.001).wait_seconds(MOST) == LEAST_SECONDS


def test_it_never_waits_longer_than_the_request_timeout() -> None:
    assert used_to(4.0).wait_seconds(MOST) == MOST
    assert used_to(0.001).wait_seconds(LEAST_SECONDS / 2) == LEAST_SECONDS / 2


@pytest.mark.parametrize("operation", [True, False])
def test_one_slow_answer_is_enough_to_wait_longer(operation: bool) -> None:
    reply_timeout = used_to(0.1)
    reply_timeout.answered(SLOW, operation=operation)
    assert reply_timeout.wait_seconds(MOST) >= FACTOR * SLOW


def test_a_slow_answer_is_forgotten_by_half_after_many_operations() -> None:
    reply_timeout = used_to(0.0)
    reply_timeout.answered(SLOW, operation=True)
    answer(reply_timeout, 0.0, HALF_LIFE)
    assert reply_timeout.wait_seconds(MOST) == pytest.approx(FACTOR * SLOW / 2 + MARGIN_SECONDS)


def test_an_idle_host_s_questions_forget_nothing() -> None:
    reply_timeout = used_to(1.0)
    for _ in range(10 * HALF_LIFE):
        reply_timeout.answered(0.02, operation=False)
    assert reply_timeout.wait_seconds(MOST) == pytest.approx(FACTOR + MARGIN_SECONDS)


def test_after_a_wait_in_vain_nothing_is_presumed_until_an_operation_is_answered() -> None:
    reply_timeout = used_to(0.1)
    before = reply_timeout.wait_seconds(MOST)
    reply_timeout.gave_up(began=10.0)
    reply_timeout.answered(0.1, operation=False)
    assert reply_timeout.wait_seconds(MOST) == MOST
    answer(reply_timeout, 0.1, 1)
    assert reply_timeout.wait_seconds(MOST) == pytest.approx(before, rel=0.01)


def test_an_operation_that_was_given_up_and_is_still_worked_on_counts_as_a_slow_answer() -> None:
    reply_timeout = used_to(0.1)
    reply_timeout.gave_up(began=10.0)
    reply_timeout.found_unfinished(now=11.0)
    answer(reply_timeout, 0.1, 1)
    assert reply_timeout.wait_seconds(MOST) >= FACTOR


def test_a_connection_in_use_says_nothing_where_nothing_was_given_up() -> None:
    reply_timeout = used_to(0.1)
    before = reply_timeout.wait_seconds(MOST)
    reply_timeout.found_unfinished(now=1000.0)
    assert reply_timeout.wait_seconds(MOST) == before


@pytest.mark.parametrize("usual", [0.001, 0.02, 0.1, 0.4, 1.0])
@pytest.mark.parametrize("slow", [0.3, 1.0, 2.0, 4.9])
def test_a_host_that_gets_slower_loses_one_session_at_most(usual: float, slow: float) -> None:
    reply_timeout, given_up = used_to(usual), 0
    for number in range(3 * HALF_LIFE):
        if slow > reply_timeout.wait_seconds(MOST):
            given_up += 1
            reply_timeout.gave_up(began=float(number))
        else:
            reply_timeout.answered(slow, operation=True)
    assert given_up <= 1
