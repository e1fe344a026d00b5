"""The machine: what a send brings back whose reservation was refused."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.changes import HELD, WAITING, ChangeResult, EntityKey, to_wire
from oldhost_sync.policy.machine import operators
from oldhost_sync.policy.machine.events import SendEnded
from tests.unit.policy.play import Play, sent


def refused(play: Play, change_id: int, **found: object) -> None:
    """The send of this one change ends with the reservation's refusal."""
    ((number, send),) = play.under.sends.items()
    assert send.change_ids == (change_id,)
    del play.under.sends[number], play.in_flight[change_id]
    play.books.sequence += 1
    outcome = HELD if "held" in found else WAITING
    ended = SendEnded([ChangeResult(change_id, outcome)], **found)  # type: ignore[arg-type]
    play.machine.send_ended(number, ended, play.now_ms)


def test_what_the_reservation_says_goes_first_is_sent_before_the_change_that_it_refused(play: Play) -> None:
    older = play.accept("TXN", "u")
    play.undelivered.clear()
    play.take("TXN", "u")
    refused(play, 2, older=[to_wire(older)])
    play.books.changes[1].relayed = True
    play.step()
    assert sent(play) == [(1, 2)]


def test_a_change_that_goes_first_and_is_known_already_is_taken_once(play: Play) -> None:
    first, second = play.accept("TXN", "u"), play.accept("TXN", "u")
    play.undelivered.clear()
    play.machine.enqueue([second], play.now_ms)
    play.books.changes[2].relayed = True
    play.step()
    play.machine.enqueue([first], play.now_ms)
    refused(play, 2, older=[to_wire(first)])
    assert sorted(play.machine.coalescer.waiting) == [1, 2]
    assert play.machine.counters.received == 2


def test_a_change_that_the_reservation_holds_is_not_sent_again_before_its_dead_letter_is_decided(play: Play) -> None:
    play.take("TXN", "u")
    entity = EntityKey("unit", "u")
    refused(play, 1, held=[[*entity, [0]]])
    assert play.machine.decide(play.now_ms) == []
    assert play.machine.coalescer.holds[entity].dead == [0]


@pytest.mark.parametrize("action", ["discard", "retry"])
def test_a_dead_letter_that_was_decided_while_the_send_went_on_holds_nothing(play: Play, action: str) -> None:
    """The reservation reported it; nobody would ever end that hold."""
    play.take("TXN", "u")
    entity = EntityKey("unit", "u")
    if action == "retry":  # and applied by another send
        play.machine.outcomes.hold(entity, [0])
        play.machine.coalescer.unhold(entity, 0)
    else:
        operators.is_decided(play.machine, entity, 0)
    refused(play, 1, held=[[*entity, [0]]])
    assert play.machine.coalescer.holds == {}
    assert 1 in play.machine.coalescer.waiting or 1 in play.machine.in_flight


def test_a_dead_letter_that_was_rejected_again_holds(play: Play) -> None:
    play.take("TXN", "u")
    entity = EntityKey("unit", "u")
    operators.is_decided(play.machine, entity, 0)
    play.machine.outcomes.hold(entity, [0])
    refused(play, 1, held=[[*entity, [0]]])
    assert play.machine.coalescer.holds[entity].dead == [0]
