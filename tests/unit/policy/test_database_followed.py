"""What operators decided while the machine could not know of it: the database is the truth."""

from __future__ import annotations

from oldhost_sync.policy.breaker import BreakerState
from oldhost_sync.policy.events import OpeningHalted
from oldhost_sync.policy.operators import Pause
from oldhost_sync.policy.session import Phase
from tests.unit.policy.play import Play


def test_a_halt_that_an_opening_finds_and_an_operator_has_resolved_meanwhile_stops_nobody() -> None:
    play = Play()
    play.take("TXN", "a")
    assert play.machine.session.phase is Phase.OPENING
    play.machine.operators.resolved_before_told(epoch=7)
    play.under.opening = None
    play.machine.opening_ended(OpeningHalted("foreign"), play.now_ms)
    assert play.machine.breaker.state is BreakerState.CLOSED
    play.step()
    assert play.machine.session.phase is Phase.OPENING


def test_the_writer_follows_the_database_when_an_earlier_runs_act_ends_late() -> None:
    """That run was terminated while its worker was frozen; nobody tells this one what the operator was answered."""
    play = Play()
    play.machine.opening_ended(OpeningHalted("foreign"), play.now_ms)
    play.machine.operators.follow_database(None, play.now_ms, halted=False)
    assert play.machine.breaker.state is not BreakerState.HALTED
    play.machine.operators.follow_database(["ana", "lunch"], play.now_ms, halted=False)
    assert play.machine.paused == Pause("ana", "lunch")
    play.machine.operators.follow_database(None, play.now_ms, halted=False)
    assert play.machine.paused is None


def test_a_halt_that_the_database_has_stays() -> None:
    play = Play()
    play.machine.opening_ended(OpeningHalted("foreign"), play.now_ms)
    play.machine.operators.follow_database(None, play.now_ms, halted=True)
    assert play.machine.breaker.state is BreakerState.HALTED
