"""The machine and what an operator withdraws: told by a message, or by the reservation if that was lost."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.changes import ChangeRef, Outcome
from oldhost_sync.policy.machine.outcomes import OutcomeWaiter
from oldhost_sync.policy.machine.outstanding_changes import RecentFates
from oldhost_sync.policy.machine.snapshot import dump, load
from tests.unit.policy.play import Play, journal, sent
from tests.workflows.books import Reply


@pytest.fixture
def play() -> Play:
    play = Play()
    play.end_open()
    return play


def ref_of(play: Play, change_id: int) -> ChangeRef:
    return play.books.changes[change_id].ref


def in_database(play: Play, *change_ids: int) -> None:
    """They are withdrawn there; the machine does not know."""
    for change_id in change_ids:
        play.books.changes[change_id].outcome = Outcome.WITHDRAWN


def told(play: Play, *change_ids: int, older: tuple[int, ...] = ()) -> None:
    """As the workflow takes the message: first what is gone, then what waits in its place."""
    in_database(play, *change_ids)
    play.machine.outcomes.withdraw(change_ids, play.now_ms)
    play.machine.enqueue([ref_of(play, each) for each in older], play.now_ms)
    play.step()


def test_what_is_withdrawn_is_not_sent(play: Play) -> None:
    gone, left = play.take("LWW", "u1"), play.take("LWW", "u2")
    told(play, gone)
    play.advance(120_000)
    assert sent(play) == [(left,)]
    assert play.machine.counters.withdrawn == 1


def test_the_older_state_is_sent_in_its_place(play: Play) -> None:
    older, newer = play.take("LWW", "u", payload="old"), play.take("LWW", "u", payload="new")
    told(play, newer, older=(older,))
    play.advance(120_000)
    assert sent(play) == [(older,)]


def test_one_that_a_send_has_taken_is_left_to_its_reservation(play: Play) -> None:
    taken = play.take("TXN", "u")
    told(play, taken)
    assert taken in play.machine.in_flight
    play.end_send(1)
    assert taken not in play.machine.in_flight
    assert journal(play) == []
    assert play.machine.counters.withdrawn == 1


def test_if_the_message_is_lost_the_older_state_is_read_again(play: Play) -> None:
    older, newer = play.take("LWW", "u", payload="old"), play.take("LWW", "u", payload="new")
    in_database(play, newer)
    play.advance(120_000)
    play.end_send(1)
    assert play.under.load is not None
    assert play.under.load.entity == ref_of(play, newer).entity
    play.hurried[ref_of(play, older).key] = None  # its debounce is long over
    play.end_load()
    assert sent(play) == [(older,)]


def test_nothing_is_read_again_if_the_message_came(play: Play) -> None:
    """It names what waits: fifty thousand would be as many questions."""
    told(play, play.take("LWW", "u"))
    assert play.under.load is None
    assert not play.machine.loading.entities


def test_nothing_is_read_again_for_a_change_that_replaces_none(play: Play) -> None:
    taken = play.take("TXN", "u")
    in_database(play, taken)
    play.end_send(1)
    assert not play.machine.loading.entities


def test_a_page_that_is_being_read_keeps_the_older_states(play: Play) -> None:
    """Applied, a state ends the older ones of its key; withdrawn, it does not."""
    older, newer = (ref_of(play, play.take("LWW", "u")) for _ in range(2))
    recent = RecentFates()
    recent.begin()
    recent.saw(newer, replaces=False)
    assert recent.outstanding([older, newer]) == [older]
    recent.saw(newer, replaces=True)
    assert recent.outstanding([older, newer]) == []


def test_the_changes_of_an_entity_go_on_without_it(play: Play) -> None:
    """An emergency takes the older ones along, and not the one that is gone."""
    older, gone = play.take("LWW", "u", "a"), play.take("LWW", "u", "b")
    told(play, gone)
    urgent = play.take("EMERGENCY", "u")
    assert sent(play) == [(older, urgent)]


def test_a_retried_letter_that_is_withdrawn_holds_nothing_back(play: Play) -> None:
    dead = play.take("TXN", "u", "a")
    play.end_send(1, lambda _: Reply.REJECTED)
    for unit in "xy":  # as much as is sent at a time
        play.take("TXN", unit)
    assert play.decide_on(dead, "retry") == ""
    told(play, dead)
    later = play.take("TXN", "u", "b")
    assert not play.machine.coalescer.holds
    assert later in play.machine.coalescer.waiting


def test_an_update_that_waits_for_its_fate_hears_of_it(play: Play) -> None:
    gone = play.take("LWW", "u")
    waiter = play.machine.outcomes.watched[gone] = OutcomeWaiter(1)
    told(play, gone)
    assert waiter.fate is not None
    assert waiter.fate.outcome == Outcome.WITHDRAWN


def test_the_count_is_carried_into_the_next_run(play: Play) -> None:
    told(play, play.take("LWW", "u"))
    assert load(dump(play.machine), play.policy, play.now_ms).counters.withdrawn == 1


def test_an_unknown_id_changes_nothing(play: Play) -> None:
    play.machine.outcomes.withdraw([987], play.now_ms)
    assert play.machine.counters.withdrawn == 0
