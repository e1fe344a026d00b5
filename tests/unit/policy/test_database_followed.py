"""What operators decided while the machine could not know of it: the database is the truth."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.changes import WAITING, ChangeRef, ChangeResult, EntityKey
from oldhost_sync.policy.machine import operators
from oldhost_sync.policy.machine.events import OpeningHalted, SendEnded
from oldhost_sync.policy.machine.machine import Machine, Pause
from oldhost_sync.policy.machine.outcomes import Counters
from oldhost_sync.policy.machine.session import BreakerState, Phase
from tests.unit.policy.play import Play
from tests.workflows.books import Reply
from workflows.messages import to_wire

UNIT = EntityKey("unit", "u")


def test_a_halt_that_an_opening_finds_and_an_operator_has_resolved_meanwhile_stops_nobody() -> None:
    play = Play()
    play.take("TXN", "a")
    assert play.machine.session.phase is Phase.OPENING
    operators.resolved_before_told(play.machine, epoch=7)
    play.under.opening = None
    play.machine.opening_ended(OpeningHalted("foreign"), play.now_ms)
    assert play.machine.breaker.state is BreakerState.CLOSED
    play.step()
    assert play.machine.session.phase is Phase.OPENING


def test_the_writer_follows_the_database_when_an_earlier_runs_act_ends_late() -> None:
    """That run was terminated while its worker was frozen; nobody tells this one what the operator was answered."""
    play = Play()
    play.machine.opening_ended(OpeningHalted("foreign"), play.now_ms)
    operators.follow_database(play.machine, None, play.now_ms, halted=False)
    assert play.machine.breaker.state is not BreakerState.HALTED
    operators.follow_database(play.machine, ["ana", "lunch"], play.now_ms, halted=False)
    assert play.machine.paused == Pause("ana", "lunch")
    operators.follow_database(play.machine, None, play.now_ms, halted=False)
    assert play.machine.paused is None


def test_a_halt_that_the_database_has_stays() -> None:
    play = Play()
    play.machine.opening_ended(OpeningHalted("foreign"), play.now_ms)
    operators.follow_database(play.machine, None, play.now_ms, halted=True)
    assert play.machine.breaker.state is BreakerState.HALTED


# ------------------------------------------------------------------------------- holds that the database does not have


def rejected(play: Play, *ids: int) -> None:
    """All sends end; OldHost rejects these changes."""
    while play.under.sends:
        number = next(iter(play.under.sends))
        play.end_send(number, lambda change_id: Reply.REJECTED if change_id in ids else Reply.APPLIED)


def held(play: Play) -> tuple[ChangeRef, ChangeRef]:
    """A dead letter, and a TXN change that it holds."""
    play.end_open()
    dead = play.take("TXN", "u")
    rejected(play, dead)
    behind = play.take("TXN", "u")
    assert play.machine.coalescer.holds[UNIT].dead == [dead]
    return play.books.changes[dead].ref, play.books.changes[behind].ref


def swept(machine: Machine, now_ms: int, *outstanding: ChangeRef) -> None:
    """A sweep reads these as outstanding and not held."""
    machine.sweeping.begin()
    machine.swept(outstanding, 0, False, now_ms)


def test_a_hold_that_the_database_does_not_have_ends_at_the_next_sweep() -> None:
    """Its dead letter was decided, and the machine missed that: nothing of the unit would ever be sent again."""
    play = Play()
    _, behind = held(play)
    swept(play.machine, play.now_ms, behind)
    assert play.machine.coalescer.holds == {}
    assert behind.change_id in play.machine.coalescer.waiting


def test_a_dead_letter_that_waits_by_the_database_waits_here_after_the_next_sweep() -> None:
    play = Play()
    dead, behind = held(play)
    swept(play.machine, play.now_ms, dead, behind)
    assert dead.change_id in play.machine.coalescer.waiting
    assert behind.change_id not in play.machine.coalescer.waiting


def test_a_retried_dead_letter_that_waits_still_holds_the_others_after_a_sweep() -> None:
    play = Play()
    dead, behind = held(play)
    operators.retry(play.machine, dead, play.now_ms)
    swept(play.machine, play.now_ms, dead, behind)
    assert play.machine.coalescer.holds[UNIT].dead == [dead.change_id]
    assert behind.change_id not in play.machine.coalescer.waiting


def test_a_letter_that_died_before_this_writer_began_is_not_taken_from_its_counter() -> None:
    play = Play()
    dead, _ = held(play)
    play.machine.counters = Counters()
    operators.retry(play.machine, dead, play.now_ms)
    assert play.machine.counters.dead == 0


def test_a_change_that_was_rejected_while_the_sweep_read_holds_the_others() -> None:
    play = Play()
    play.end_open()
    play.take("TXN", "u")
    play.machine.sweeping.begin()
    rejected(play, 1)
    behind = play.books.changes[play.take("TXN", "u")].ref
    play.machine.swept([behind], 0, False, play.now_ms)
    assert play.machine.coalescer.holds[UNIT].dead == [1]


@pytest.mark.parametrize(("cls", "unit"), [("LWW", "u"), ("EMERGENCY", "u"), ("TXN", "v")])
def test_a_waiting_change_that_no_dead_letter_could_hold_ends_no_hold(cls: str, unit: str) -> None:
    play = Play()
    held(play)
    other = play.books.changes[play.take(cls, unit)].ref
    swept(play.machine, play.now_ms, other)
    assert play.machine.coalescer.holds[UNIT].dead == [1]


def test_a_change_between_two_dead_letters_ends_the_older_ones_hold_alone() -> None:
    play = Play()
    play.end_open()
    play.take("TXN", "u")
    between = play.accept("TXN", "u")
    play.undelivered.clear()
    newer = play.take("TXN", "u")
    rejected(play, 1, newer)
    play.machine.outcomes.hold(UNIT, [1, newer])
    swept(play.machine, play.now_ms, between)
    assert play.machine.coalescer.holds[UNIT].dead == [newer]


def test_a_hold_that_ends_so_counts_as_decided() -> None:
    play = Play()
    _, behind = held(play)
    assert play.machine.outcomes.dead_letters == 1
    swept(play.machine, play.now_ms, behind)
    assert play.machine.outcomes.dead_letters == 0


def test_a_dead_letter_that_another_send_still_has_is_left_to_its_report() -> None:
    play = Play()
    play.end_open()
    urgent_and_ordinary(play)
    play.end_send(2, lambda change_id: Reply.REJECTED if change_id == 1 else Reply.APPLIED)
    dead = play.books.changes[1].ref
    swept(play.machine, play.now_ms, dead)
    assert 1 not in play.machine.coalescer.waiting
    assert play.machine.coalescer.holds[UNIT].dead == [1]


def test_a_change_that_a_reservation_wants_sent_first_was_retried_if_it_is_a_dead_letter_here() -> None:
    """Else the change behind it would be refused and put back until the next sweep, an emergency, too."""
    play = Play()
    dead, _ = held(play)
    emergency = play.take("EMERGENCY", "u")
    ((number, _),) = play.under.sends.items()
    refused = SendEnded([ChangeResult(emergency, WAITING)], older=[to_wire(dead)])
    play.machine.send_ended(number, refused, play.now_ms)
    assert dead.change_id in play.machine.coalescer.waiting


# ------------------------------------------------------------------------------- decisions while sends are under way


def urgent_and_ordinary(play: Play) -> None:
    """Change 1 is in an ordinary send, and in an urgent one ahead of its unit's emergency."""
    play.take("TXN", "u")
    play.take("EMERGENCY", "u")
    assert [send.change_ids for send in play.under.sends.values()] == [(1,), (1, 2)]


@pytest.mark.parametrize("action", ["retry", "discard"])
def test_a_dead_letter_is_not_decided_while_another_send_still_has_it(play: Play, action: str) -> None:
    """That send would report the rejection after the decision, and nobody would decide about it again."""
    urgent_and_ordinary(play)
    play.end_send(2, lambda change_id: Reply.REJECTED if change_id == 1 else Reply.APPLIED)
    assert play.books.dead_letters() == [1]
    assert "is being sent to OldHost" in operators.objection(play.machine, action, 1)
    play.end_send(1)
    assert operators.objection(play.machine, action, 1) == ""


def test_other_acts_wait_for_no_send(play: Play) -> None:
    urgent_and_ordinary(play)
    assert operators.objection(play.machine, "halt", 1) == operators.objection(play.machine, "flush") == ""
