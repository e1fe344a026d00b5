"""The session and the breaker: the rows of the table, and that all else raises and changes nothing."""

from __future__ import annotations

from itertools import product

import pytest

from oldhost_sync.policy.machine.events import SessionOpened
from oldhost_sync.policy.machine.session import (
    ROWS,
    TRANSITIONS,
    Breaker,
    BreakerState,
    Event,
    HostLink,
    IllegalTransition,
    Phase,
    SessionState,
)
from tests.unit.policy.play import Play

ALL = list(product(Event, Phase, BreakerState))


def link(phase: Phase, breaker: BreakerState = BreakerState.CLOSED, **session: object) -> HostLink:
    made = HostLink(900_000)
    made.session.phase, made.breaker.state = phase, breaker
    for name, value in session.items():
        setattr(made.session, name, value)
    return made


def test_no_joint_state_has_two_rows_for_one_event() -> None:
    assert len(TRANSITIONS) == sum(len(row.phases) * len(row.breakers) for row in ROWS)


@pytest.mark.parametrize(("event", "phase", "breaker"), [each for each in ALL if each not in TRANSITIONS])
def test_an_event_that_the_table_does_not_list_raises_and_changes_nothing(
    event: Event, phase: Phase, breaker: BreakerState
) -> None:
    between = link(phase, breaker, epoch=3)
    with pytest.raises(IllegalTransition, match=f"while the session is {phase.value} and the breaker {breaker.value}"):
        between.move(event)
    assert between.session == SessionState(phase, epoch=3)
    assert between.breaker == Breaker(900_000, breaker)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.OPENING])
@pytest.mark.parametrize("event", [Event.OPENED, Event.POSTPONED, Event.REFUSED])
def test_only_what_is_being_opened_is_answered(event: Event, phase: Phase) -> None:
    assert not any((event, phase, breaker) in TRANSITIONS for breaker in BreakerState)


@pytest.mark.parametrize("phase", Phase)
def test_nothing_is_opened_while_banned_or_halted(phase: Phase) -> None:
    may = [breaker for breaker in BreakerState if link(phase, breaker).may_open(0)]
    free = phase in (Phase.NONE, Phase.PAUSING)
    assert may == ([BreakerState.CLOSED, BreakerState.HALF_OPEN] if free else [])


def test_a_session_that_opens_begins_anew() -> None:
    between = link(Phase.OPENING, epoch=6, attempts=2, sends=9, lost=True, until_ms=5, sessions_without_progress=1)
    between.opened(SessionOpened(7, "queue", 501))
    assert between.session == SessionState(Phase.OPEN, 7, "queue", 501, sessions_without_progress=1)


def test_a_session_that_opens_after_a_halt_leaves_the_halt() -> None:
    between = link(Phase.OPENING)
    between.halt("foreign")
    between.opened(SessionOpened(7, "queue", 501))
    assert (between.session.phase, between.breaker.state) == (Phase.OPEN, BreakerState.HALTED)
    assert between.breaker.reason == "foreign"


def test_a_session_that_rests_is_not_opened_before_its_time() -> None:
    between = link(Phase.OPENING)
    between.move(Event.POSTPONED)
    between.wait(1_000, "busy")
    assert [between.may_open(now_ms) for now_ms in (999, 1_000)] == [False, True]


@pytest.mark.parametrize(("event", "after"), [(Event.ENDED, Phase.NONE), (Event.ENDED_IDLE, Phase.PAUSING)])
def test_what_ends_leaves_its_epoch_and_how_often_nothing_came_of_it(event: Event, after: Phase) -> None:
    between = link(Phase.OPEN, epoch=7, task_queue="queue", sends=3, lost=True, sessions_without_progress=2)
    between.ended(event)
    assert between.session == SessionState(after, 7, sessions_without_progress=2)


def test_an_end_of_an_opening_that_cannot_be_handled_leaves_no_session_in_opening() -> None:
    """Else the writer would wait for that end for ever, also when the halt that follows is resolved."""
    play = Play()
    play.machine.session.phase, play.machine.breaker.state = Phase.OPENING, BreakerState.OPEN
    with pytest.raises(IllegalTransition):
        play.machine.opening_ended(SessionOpened(1, "queue", 1), play.now_ms)
    assert play.machine.session.phase is Phase.NONE
