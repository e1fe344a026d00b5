"""Whether a silent worker is dead or slow is learned from who opens the next session."""

from __future__ import annotations

from oldhost_sync.policy.machine.session import REMEMBERED_MS, SLACK_MAX, FailureDetector


def wrong(detector: FailureDetector, times: int, at_ms: int = 0) -> FailureDetector:
    """So many times the worker that was given up was only slow."""
    for _ in range(times):
        detector.timed_out("one")
        detector.opened("one", at_ms)
    return detector


def test_a_worker_is_given_its_usual_time_at_first() -> None:
    assert FailureDetector().slack(0) == 1


def test_a_worker_that_opens_again_after_it_was_given_up_has_twice_the_time() -> None:
    assert wrong(FailureDetector(), 1).slack(0) == 2


def test_the_time_doubles_each_time_up_to_a_limit() -> None:
    assert [wrong(FailureDetector(), times).slack(0) for times in range(5)] == [1, 2, 4, SLACK_MAX, SLACK_MAX]


def test_where_another_worker_opens_the_limits_stay() -> None:
    detector = FailureDetector()
    detector.timed_out("one")
    detector.opened("other", 0)
    detector.opened("one", 0)
    assert detector.slack(0) == 1


def test_a_session_that_ended_otherwise_says_nothing_about_its_worker() -> None:
    detector = FailureDetector()
    detector.opened("one", 0)
    detector.opened("one", 0)
    assert detector.slack(0) == 1


def test_the_usual_limits_return_some_minutes_after_the_last_error() -> None:
    detector = wrong(wrong(FailureDetector(), 1), 1, at_ms=1_000)
    assert detector.slack(REMEMBERED_MS + 999) == 4
    assert detector.slack(REMEMBERED_MS + 1_000) == 1
    assert wrong(detector, 1, at_ms=REMEMBERED_MS + 1_000).slack(REMEMBERED_MS + 1_000) == 2
