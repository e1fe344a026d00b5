"""The session's phases: the table's rows, and that all else raises and changes nothing."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.machine.breaker import IllegalTransition
from oldhost_sync.policy.machine.events import SessionOpened
from oldhost_sync.policy.machine.session import Phase, SessionEvent, SessionState

NOWHERE = [
    (Phase.OPENING, SessionEvent.OPEN),
    (Phase.OPEN, SessionEvent.OPEN),
    (Phase.CLOSING, SessionEvent.OPEN),
    *((phase, SessionEvent.CLOSE) for phase in Phase if phase is not Phase.OPEN),
    *((phase, SessionEvent.LOST) for phase in Phase if phase is not Phase.OPEN),
    *((phase, SessionEvent.GIVE_UP) for phase in Phase if phase is not Phase.OPENING),
    *((phase, SessionEvent.REST) for phase in Phase if phase is not Phase.NONE),
]


@pytest.mark.parametrize(("phase", "event"), NOWHERE)
def test_an_event_that_a_phase_does_not_know_raises_and_changes_nothing(phase: Phase, event: SessionEvent) -> None:
    session = SessionState(phase, epoch=3)
    with pytest.raises(IllegalTransition, match=f"not possible while the session is {phase.value}"):
        session.move(event)
    assert session == SessionState(phase, epoch=3)


@pytest.mark.parametrize("phase", Phase)
def test_an_opening_that_ends_counts_in_every_phase(phase: Phase) -> None:
    """A broken rule may have given it up, and an operator have the next one begun."""
    found = SessionState(phase, attempts=2).opened(SessionOpened(7, "queue", 501), sessions_without_progress=1)
    assert found == SessionState(Phase.OPEN, 7, "queue", 501, sessions_without_progress=1)


def test_a_session_that_rests_is_not_opened_before_its_time() -> None:
    session = SessionState(Phase.OPENING)
    session.wait(SessionEvent.POSTPONED, "busy", until_ms=1_000)
    assert [session.may_open(now_ms) for now_ms in (999, 1_000)] == [False, True]


def test_what_ends_leaves_its_epoch_and_how_often_nothing_came_of_it() -> None:
    session = SessionState(Phase.OPEN, 7, "queue", 501, sends=3, lost=True, sessions_without_progress=2)
    assert session.ended(SessionEvent.LOST) == SessionState(Phase.NONE, 7, sessions_without_progress=2)
