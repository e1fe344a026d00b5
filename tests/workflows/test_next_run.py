"""When a run ends, and that a large rebuild does not end the run that it was made for."""

from __future__ import annotations

from workflows.continue_as_new import DRAIN_MS, EVENTS_AFTER_REBUILD, HISTORY_BYTES_MAX, SIGNALS_MAX, NextRun


def test_a_run_ends_when_temporal_suggests_it_or_new_settings_came() -> None:
    next_run = NextRun()
    assert not next_run.is_due(10, suggested=False)
    assert next_run.is_due(4_096, suggested=True)
    next_run.asked = True
    assert next_run.is_due(10, suggested=False)


def test_a_small_rebuild_changes_nothing() -> None:
    next_run = NextRun()
    next_run.rebuilt(9, suggested=False)
    assert next_run.is_due(10, suggested=True)


def test_a_rebuild_that_alone_made_the_run_long_is_worked_off_before_the_next() -> None:
    """Else the next run would rebuild as well, and no operation would ever be sent."""
    next_run = NextRun()
    next_run.rebuilt(455, suggested=True)
    assert not next_run.is_due(455 + EVENTS_AFTER_REBUILD - 1, suggested=True)
    assert next_run.is_due(455 + EVENTS_AFTER_REBUILD, suggested=True)


def test_a_run_ends_before_its_history_or_its_signals_come_near_temporals_limits() -> None:
    next_run = NextRun()
    assert next_run.is_due(10, suggested=False, history_bytes=HISTORY_BYTES_MAX)
    assert next_run.is_due(10, suggested=False, signals=SIGNALS_MAX)
    assert not next_run.is_due(10, suggested=False, history_bytes=HISTORY_BYTES_MAX - 1, signals=SIGNALS_MAX - 1)


def test_what_a_rebuild_took_of_the_history_does_not_count() -> None:
    next_run = NextRun()
    next_run.rebuilt(500, suggested=False, history_bytes=HISTORY_BYTES_MAX)
    assert not next_run.is_due(501, suggested=False, history_bytes=HISTORY_BYTES_MAX + 1)


def test_book_keeping_has_two_seconds_before_a_new_run() -> None:
    next_run = NextRun()
    assert not next_run.drain(due=False, now_ms=0)
    assert next_run.drain(due=True, now_ms=1_000)
    assert next_run.drain(due=True, now_ms=2_000)
    assert not next_run.leave(1_000 + DRAIN_MS - 1, decides_again=True)
    assert not next_run.leave(1_000 + DRAIN_MS, decides_again=True)
    assert next_run.leave(1_000 + DRAIN_MS + 1, decides_again=True)
    assert next_run.leave(1_000 + DRAIN_MS + 2, decides_again=True)


def test_it_ends_only_in_the_task_after_the_one_that_finds_the_time_over() -> None:
    next_run = NextRun()
    next_run.drain(due=True, now_ms=0)
    assert not next_run.leave(DRAIN_MS + 500, decides_again=True)
    assert not next_run.leave(DRAIN_MS + 500, decides_again=True)
    assert next_run.leave_at_ms == DRAIN_MS + 501
    assert next_run.leave(DRAIN_MS + 501, decides_again=True)


def test_a_run_that_leaves_at_once_ends_in_that_task() -> None:
    next_run = NextRun()
    next_run.drain(due=True, now_ms=0)
    assert next_run.leave(DRAIN_MS, decides_again=False)
