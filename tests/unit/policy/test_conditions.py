"""What opens and closes an alert, report by report."""

from __future__ import annotations

from dataclasses import replace

from oldhost_sync.policy.rules.alert_kinds import KINDS
from oldhost_sync.policy.rules.conditions import (
    AGAIN_SECONDS,
    CLOSED_AGAIN_SECONDS,
    FRESH_SECONDS,
    Conditions,
    Fact,
    Step,
)

HOST, KIND = "north", "temporal-away"
LASTS = KINDS[KIND].opens_after_s
AWAY = Fact("Temporal does not answer")
OPEN, CLOSE = Step(HOST, KIND, AWAY), Step(HOST, KIND, None)


def report(conditions: Conditions, fact: Fact | None, now: float) -> list[Step]:
    """What is written after this report."""
    conditions.found(HOST, KIND, fact, now)
    steps = conditions.due(now)
    for step in steps:
        conditions.written(step, now)
    return steps


def test_a_fact_opens_an_alert_once_it_has_lasted() -> None:
    conditions = Conditions()
    reported = {now: report(conditions, AWAY, now) for now in (0, LASTS - 1, LASTS, LASTS + 1)}
    assert reported == {0: [], LASTS - 1: [], LASTS: [OPEN], LASTS + 1: []}


def test_a_break_begins_the_time_anew() -> None:
    conditions = Conditions()
    report(conditions, AWAY, 0)
    report(conditions, None, 1)
    assert report(conditions, AWAY, LASTS) == []
    assert report(conditions, AWAY, 2 * LASTS) == [OPEN]


def test_what_need_not_last_opens_at_once() -> None:
    fact = Fact("a clock differs by a day", at_once=True)
    assert report(Conditions(), fact, 0) == [Step(HOST, KIND, fact)]


def test_other_words_are_written_at_once_and_the_same_again_after_a_while() -> None:
    conditions, other = Conditions(), Fact("Temporal is away for others, too")
    report(conditions, AWAY, 0)
    report(conditions, AWAY, LASTS)
    assert report(conditions, other, LASTS + 1) == [Step(HOST, KIND, other)]
    assert report(conditions, other, LASTS + AGAIN_SECONDS) == []
    assert report(conditions, other, LASTS + 1 + AGAIN_SECONDS) == [Step(HOST, KIND, other)]


def test_what_an_earlier_process_may_have_opened_is_closed_by_the_first_report_once() -> None:
    conditions = Conditions()
    assert [report(conditions, None, now) for now in (0, 3, 3 + AGAIN_SECONDS)] == [[CLOSE], [], []]


def test_what_another_process_opened_by_mistake_is_closed_after_a_while() -> None:
    conditions = Conditions()
    closed = [now for now in range(0, 1300, 100) if report(conditions, None, now)]
    assert closed == [0, CLOSED_AGAIN_SECONDS, 2 * CLOSED_AGAIN_SECONDS]


def test_what_could_not_be_written_is_due_until_it_is() -> None:
    conditions = Conditions()
    conditions.found(HOST, KIND, None, 0)
    assert conditions.due(1) == conditions.due(1000) == [CLOSE]
    conditions.found(HOST, KIND, Fact("x", at_once=True), 2000)
    assert len(conditions.due(2000)) == 1


def test_an_opening_that_could_not_be_written_must_be_reported_again() -> None:
    """After an outage of the database the fact may be gone, too."""
    conditions = Conditions()
    for now in (0, LASTS):
        conditions.found(HOST, KIND, AWAY, now)
    assert conditions.due(LASTS + max(FRESH_SECONDS, LASTS)) == [OPEN]
    assert conditions.due(LASTS + max(FRESH_SECONDS, LASTS) + 1) == []
    conditions.found(HOST, KIND, AWAY, 1000)
    assert conditions.due(1000) == [OPEN]


def test_after_another_process_had_the_host_all_is_written_again() -> None:
    conditions = Conditions()
    report(conditions, None, 0)
    conditions.unknown(HOST, KIND)
    assert conditions.due(1) == []
    assert report(conditions, None, 2) == [CLOSE]


def test_a_fact_counts_as_lasting_though_the_host_was_away_for_a_moment() -> None:
    conditions = Conditions()
    report(conditions, AWAY, 0)
    for now in (1, 2):
        conditions.unknown(HOST, KIND, remembered_until=now + LASTS)
    assert report(conditions, AWAY, LASTS) == [OPEN]


def test_a_fact_is_new_after_the_host_was_away_for_long() -> None:
    conditions = Conditions()
    report(conditions, AWAY, 0)
    for now in (1, LASTS):
        conditions.unknown(HOST, KIND, remembered_until=now + LASTS)
    assert report(conditions, AWAY, LASTS + 1) == []


def test_what_is_written_while_it_changes_is_written_again() -> None:
    conditions = Conditions()
    conditions.found(HOST, KIND, None, 0)
    (closing,) = conditions.due(0)
    fact = Fact("now", at_once=True)
    conditions.found(HOST, KIND, fact, 1)
    conditions.written(closing, 1)
    assert conditions.due(1) == [Step(HOST, KIND, fact)]


def test_hosts_and_kinds_are_apart() -> None:
    conditions = Conditions()
    report(conditions, AWAY, 0)
    conditions.found("south", KIND, AWAY, LASTS)
    conditions.found(HOST, "no-worker", AWAY, LASTS)
    assert conditions.due(LASTS) == []


LATER = Fact("it was full", afterwards=True)


def test_what_is_told_afterwards_is_written_though_it_is_over_by_then() -> None:
    conditions = Conditions()
    for now in (0, LASTS):
        conditions.found(HOST, KIND, LATER, now)
    for now in (LASTS + 1, LASTS + 2):
        conditions.found(HOST, KIND, None, now)
    assert conditions.due(10 * LASTS) == [Step(HOST, KIND, LATER), CLOSE]


def test_what_did_not_last_is_not_told_afterwards() -> None:
    conditions = Conditions()
    for now in (0, LASTS - 1):
        conditions.found(HOST, KIND, LATER, now)
    conditions.found(HOST, KIND, None, LASTS)
    assert conditions.due(LASTS) == [CLOSE]


def test_what_is_told_afterwards_is_not_forgotten_for_a_short_one_that_follows() -> None:
    conditions = Conditions()
    for now in (0, LASTS):
        conditions.found(HOST, KIND, LATER, now)
    conditions.found(HOST, KIND, None, LASTS + 1)
    conditions.found(HOST, KIND, replace(LATER, why="again"), LASTS + 2)
    assert conditions.due(LASTS + 2) == [Step(HOST, KIND, LATER), CLOSE]


def test_each_cause_is_a_condition_of_its_own() -> None:
    conditions, fact = Conditions(), Fact("at once", at_once=True)
    conditions.found(HOST, KIND, fact, 0, "one")
    conditions.found(HOST, KIND, fact, 0, "another")
    conditions.found(HOST, KIND, None, 0, "one")
    assert conditions.due(0) == [Step(HOST, KIND, None, "one"), Step(HOST, KIND, fact, "another")]
