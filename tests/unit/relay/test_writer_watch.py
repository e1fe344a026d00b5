"""What the relay does about a writer, look by look."""

from __future__ import annotations

from datetime import UTC, datetime

from oldhost_sync.relay.writer_watch import (
    AWAY,
    CLOSED,
    FAILING,
    KINDS,
    NO_WORKER,
    PAUSED,
    CloseAlerts,
    NudgeWriter,
    OpenAlert,
    StartWriter,
    TemporalAway,
    WriterWatch,
)
from oldhost_sync.temporal.writer_health import WriterHealth, WriterState

RUNNING = WriterHealth(WriterState.RUNNING)
FAILS = WriterHealth(WriterState.FAILING, "its workflow task fails: Failed decoding arguments")
ENDED = WriterHealth(WriterState.CLOSED, "its run ended: terminated")
PAUSED_BY_HAND = WriterHealth(WriterState.PAUSED_IN_TEMPORAL, "a person paused its run in Temporal (ana: a look)")
MISSING = WriterHealth(WriterState.MISSING, "never started")
UNTAKEN = WriterHealth(
    WriterState.NO_WORKER, "no worker takes its workflow task", since=datetime(2026, 1, 1, tzinfo=UTC)
)
UNPOLLED = WriterHealth(WriterState.NO_WORKER, "no worker asks for its tasks")


def looks(watch: WriterWatch, seen: WriterHealth | TemporalAway, *times: float, waiting: bool = True) -> list[object]:
    return [action for now in times for action in watch.look(seen, now, waiting=waiting)]


def starts(actions: list[object]) -> int:
    return sum(isinstance(action, StartWriter) for action in actions)


def told(actions: list[object]) -> list[str]:
    return [action.kind for action in actions if isinstance(action, OpenAlert)]


def test_a_writer_that_runs_needs_nothing_but_what_an_earlier_relay_left_open_is_closed_once() -> None:
    assert looks(WriterWatch(), RUNNING, 0, 3, 6) == [CloseAlerts(tuple(sorted(KINDS)))]


def test_a_writer_is_nudged_at_intervals_while_changes_wait_and_not_while_something_is_wrong() -> None:
    watch = WriterWatch()
    nudged = [
        now
        for now in range(0, 600, 3)
        if NudgeWriter() in watch.look(FAILS if now > 500 else RUNNING, now, waiting=now != 420)
    ]
    assert nudged == [180, 360]


def test_a_run_that_ended_is_started_and_told_of_at_the_first_look_and_over_when_it_runs() -> None:
    watch = WriterWatch()
    first = looks(watch, ENDED, 0)
    assert starts(first) == 1
    assert told(first) == [CLOSED]
    assert looks(watch, RUNNING, 3) == [CloseAlerts((CLOSED,))]


def test_a_run_that_a_person_paused_in_temporal_is_told_of_at_once_and_not_started() -> None:
    watch = WriterWatch()
    actions = looks(watch, PAUSED_BY_HAND, 0, waiting=False)
    assert (starts(actions), told(actions)) == (0, [PAUSED])
    assert any("ana: a look" in action.message for action in actions if isinstance(action, OpenAlert))
    assert looks(watch, RUNNING, 3) == [CloseAlerts((PAUSED,))]


def test_a_run_that_ended_is_started_though_nothing_waits_since_it_may_have_left_messages_unread() -> None:
    assert starts(looks(WriterWatch(), ENDED, 0, waiting=False)) == 1


def test_a_writer_that_never_was_is_started_when_something_waits_and_nobody_is_told() -> None:
    assert starts(looks(WriterWatch(), MISSING, 0, waiting=False)) == 0
    actions = looks(WriterWatch(), MISSING, 0)
    assert (starts(actions), told(actions)) == (1, [])


def test_a_run_that_ends_again_and_again_is_started_after_growing_pauses() -> None:
    watch = WriterWatch()
    started = [now for now in range(0, 300, 3) if starts(looks(watch, ENDED, now))]
    assert started == [0, 6, 18, 39, 81, 141, 201, 261]


def test_pauses_begin_anew_after_a_minute_of_running() -> None:
    watch = WriterWatch()
    looks(watch, ENDED, 0, 6, 18)
    looks(watch, RUNNING, 21, 60, 90)
    assert starts(looks(watch, ENDED, 93)) == 1
    assert starts(looks(watch, ENDED, 99)) == 1


def test_a_failing_task_is_told_of_with_its_error_after_a_few_looks_and_closed_when_it_works() -> None:
    watch = WriterWatch()
    assert told(looks(watch, FAILS, 0, 3)) == []
    (told_of,) = looks(watch, FAILS, 6)
    assert isinstance(told_of, OpenAlert)
    assert (told_of.kind, "Failed decoding arguments" in told_of.message) == (FAILING, True)
    assert looks(watch, RUNNING, 9) == [CloseAlerts((FAILING,))]


def test_a_restart_of_a_worker_is_not_told_of() -> None:
    watch = WriterWatch()
    assert told([*looks(watch, UNTAKEN, 0, 3), *looks(watch, RUNNING, 6), *looks(watch, UNTAKEN, 9, 12)]) == []


def test_without_a_worker_people_are_told_if_something_is_to_be_done() -> None:
    assert told(looks(WriterWatch(), UNTAKEN, 0, 6, waiting=False)) == [NO_WORKER]
    assert told(looks(WriterWatch(), UNPOLLED, 0, 6)) == [NO_WORKER]
    assert told(looks(WriterWatch(), UNPOLLED, 0, 6, waiting=False)) == []


def test_temporal_away_is_told_of_only_while_something_waits_and_never_starts_a_writer() -> None:
    away = TemporalAway("unavailable")
    actions = looks(WriterWatch(), away, 0, 5, 10)
    assert (starts(actions), told(actions)) == (0, [AWAY])
    assert told(looks(WriterWatch(), away, 0, 5, 10, waiting=False)) == []


def test_another_trouble_ends_the_one_before() -> None:
    watch = WriterWatch()
    looks(watch, TemporalAway("unavailable"), 0, 10)
    assert looks(watch, UNTAKEN, 13) == [CloseAlerts((AWAY,))]


def test_the_alert_says_what_to_do_about_a_task_that_temporal_does_not_hand_out() -> None:
    withheld = WriterHealth(WriterState.NO_WORKER, "workers poll", since=UNTAKEN.since, advice="terminate the run")
    (opened,) = (each for each in looks(WriterWatch(), withheld, 0, 6) if isinstance(each, OpenAlert))
    assert (opened.kind, opened.message) == (NO_WORKER, "workers poll: terminate the run")
