"""What the relay does about a writer, look by look."""

from __future__ import annotations

from datetime import UTC, datetime

from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.relay.watchdog import (
    AWAY,
    CLOSED,
    FAILING,
    KINDS,
    NO_WORKER,
    PAUSED,
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


class Watch:
    """A watch and what comes of its judgements: `starts` and `nudges` at which times, and the open alerts."""

    def __init__(self) -> None:
        self.watch, self.conditions = WriterWatch(), Conditions()
        self.starts: list[float] = []
        self.nudges: list[float] = []
        self.open: dict[str, str] = {}
        self.closed: list[str] = []

    def looks(self, seen: WriterHealth | TemporalAway, *times: float, waiting: bool = True) -> list[str]:
        """The open alerts after these looks."""
        for now in times:
            judged = self.watch.judge(seen, now, waiting=waiting)
            self.starts += [now] if judged.start else []
            self.nudges += [now] if judged.nudge else []
            for kind in KINDS:
                self.conditions.found("north", kind, Fact(judged.why) if kind == judged.kind else None, now)
            for step in self.conditions.due(now):
                self.conditions.written(step, now)
                if step.fact is not None:
                    self.open[step.kind] = step.fact.why
                else:
                    self.open.pop(step.kind, None)
                    self.closed.append(step.kind)
        return list(self.open)


def test_a_writer_that_runs_needs_nothing_but_what_an_earlier_relay_left_open_is_closed_once() -> None:
    watch = Watch()
    assert watch.looks(RUNNING, 0, 3, 6) == []
    assert (watch.starts, sorted(watch.closed)) == ([], sorted(KINDS))


def test_a_writer_is_nudged_at_intervals_while_changes_wait_and_not_while_something_is_wrong() -> None:
    watch = Watch()
    for now in range(0, 600, 3):
        watch.looks(FAILS if now > 500 else RUNNING, now, waiting=now != 420)
    assert watch.nudges == [180, 360]


def test_a_run_that_ended_is_started_and_told_of_at_the_first_look_and_over_when_it_runs() -> None:
    watch = Watch()
    assert watch.looks(ENDED, 0) == [CLOSED]
    assert watch.starts == [0]
    assert watch.looks(RUNNING, 3) == []


def test_a_run_that_a_person_paused_in_temporal_is_told_of_at_once_and_not_started() -> None:
    watch = Watch()
    assert watch.looks(PAUSED_BY_HAND, 0, waiting=False) == [PAUSED]
    assert watch.starts == []
    assert "ana: a look" in watch.open[PAUSED]
    assert watch.looks(RUNNING, 3) == []


def test_a_run_that_ended_is_started_though_nothing_waits_since_it_may_have_left_messages_unread() -> None:
    watch = Watch()
    watch.looks(ENDED, 0, waiting=False)
    assert watch.starts == [0]


def test_a_writer_that_never_was_is_started_when_something_waits_and_nobody_is_told() -> None:
    watch = Watch()
    assert watch.looks(MISSING, 0, waiting=False) == []
    assert watch.starts == []
    assert watch.looks(MISSING, 3) == []
    assert watch.starts == [3]


def test_a_run_that_ends_again_and_again_is_started_after_growing_pauses() -> None:
    watch = Watch()
    watch.looks(ENDED, *range(0, 300, 3))
    assert watch.starts == [0, 6, 18, 39, 81, 141, 201, 261]


def test_pauses_begin_anew_after_a_minute_of_running() -> None:
    watch = Watch()
    watch.looks(ENDED, 0, 6, 18)
    watch.looks(RUNNING, 21, 60, 90)
    watch.looks(ENDED, 93, 99)
    assert watch.starts == [0, 6, 18, 93, 99]


def test_a_failing_task_is_told_of_with_its_error_after_a_few_looks_and_closed_when_it_works() -> None:
    watch = Watch()
    assert watch.looks(FAILS, 0, 3) == []
    assert watch.looks(FAILS, 6) == [FAILING]
    assert "Failed decoding arguments" in watch.open[FAILING]
    assert watch.looks(RUNNING, 9) == []


def test_a_restart_of_a_worker_is_not_told_of() -> None:
    watch = Watch()
    found = [watch.looks(UNTAKEN, 0, 3), watch.looks(RUNNING, 6), watch.looks(UNTAKEN, 9, 12)]
    assert found == [[], [], []]


def test_without_a_worker_people_are_told_if_something_is_to_be_done() -> None:
    assert Watch().looks(UNTAKEN, 0, 6, waiting=False) == [NO_WORKER]
    assert Watch().looks(UNPOLLED, 0, 6) == [NO_WORKER]
    assert Watch().looks(UNPOLLED, 0, 6, waiting=False) == []


def test_temporal_away_is_told_of_only_while_something_waits_and_never_starts_a_writer() -> None:
    away, watch = TemporalAway("unavailable"), Watch()
    assert watch.looks(away, 0, 5, 10) == [AWAY]
    assert watch.starts == []
    assert Watch().looks(away, 0, 5, 10, waiting=False) == []


def test_another_trouble_ends_the_one_before() -> None:
    watch = Watch()
    watch.looks(TemporalAway("unavailable"), 0, 10)
    assert watch.looks(UNTAKEN, 13) == []


def test_the_alert_says_what_to_do_about_a_task_that_temporal_does_not_hand_out() -> None:
    withheld = WriterHealth(WriterState.NO_WORKER, "workers poll", since=UNTAKEN.since, advice="terminate the run")
    watch = Watch()
    watch.looks(withheld, 0, 6)
    assert watch.open == {NO_WORKER: "workers poll: terminate the run"}
