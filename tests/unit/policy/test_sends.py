"""Sends: what goes together, gives way, and when it is told to end; by playing the machine against the books."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.changes import WAITING, ChangeRef, ChangeResult, Outcome, PriorityClass, to_wire
from oldhost_sync.policy.machine import operators
from oldhost_sync.policy.machine.actions import LoadOutstanding, Send
from oldhost_sync.policy.machine.events import SendEnded, SendFailed, SessionOpened
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.machine.outstanding_changes import Part
from oldhost_sync.policy.machine.session import BreakerState
from oldhost_sync.policy.tuning import SEND_FILL_MS, WriterPolicy
from tests.unit.policy.play import START_MS, Play, journal, sent

TXN, LWW, EMERGENCY = PriorityClass.TXN, PriorityClass.LWW, PriorityClass.EMERGENCY


def test_a_send_fills_some_seconds_of_oldhosts_time(play: Play) -> None:
    fill(play, 20)
    assert sent(play) == [tuple(range(1, 9)), tuple(range(9, 17))]


def fill(play: Play, count: int, unit: str = "") -> None:
    """So many TXN wait, and the session has just opened: two sends of eight go."""
    operators.pause(play.machine, "ana", "to fill up")
    for number in range(count):
        play.take("TXN", unit or f"u{number}")
    operators.resume(play.machine)
    play.end_close()
    play.end_open()


def test_an_emergency_does_not_wait_for_the_sends_in_flight(play: Play) -> None:
    fill(play, 20)
    play.take("EMERGENCY", "v")
    assert [(send.change_ids, send.urgent, send.sequence) for send in play.under.sends.values()][2:] == [
        ((21,), True, 1)
    ]
    play.end_send(3)
    assert journal(play)[-1:] == [21]


def test_an_emergency_takes_along_what_is_in_flight_of_its_entity(play: Play) -> None:
    fill(play, 20)
    play.take("EMERGENCY", "u3")
    assert sent(play)[2:] == [(4, 21)]
    play.end_send(3)
    play.end_send(1)
    assert journal(play) == [4, 21, 1, 2, 3, 5, 6, 7, 8]


def test_an_urgent_send_that_nobody_took_gives_back_only_what_it_has_alone(play: Play) -> None:
    fill(play, 20)
    play.take("EMERGENCY", "u3")
    play.fail_send(3, never_started=True)
    assert sorted(play.machine.coalescer.waiting) == [17, 18, 19, 20, 21]
    play.fail_send(1, never_started=False)
    assert 4 in play.machine.in_flight.in_doubt


def test_what_an_urgent_send_took_along_does_not_wait_before_both_have_ended(play: Play) -> None:
    fill(play, 8)
    play.take("EMERGENCY", "u3")
    fates = [ChangeResult(one, WAITING if one == 4 else Outcome.APPLIED.value) for one in range(1, 9)]
    play.machine.send_ended(1, SendEnded(fates), START_MS)
    assert (4 in play.machine.in_flight, 4 in play.machine.coalescer.waiting) == (True, False)
    assert not play.machine.in_flight.in_doubt
    play.machine.send_ended(2, SendEnded([ChangeResult(4, WAITING), ChangeResult(9, WAITING)]), START_MS)
    assert sorted(play.machine.coalescer.waiting) == [4, 9]


def test_what_is_bound_stays_bound_when_its_send_is_told_to_end_before_its_turn() -> None:
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    bound = ChangeRef(1, TXN, "unit", "u", "e", START_MS)
    machine.decide(START_MS)
    machine.opening_ended(SessionOpened(1, "queue", 1, bound=[to_wire(bound)]), START_MS)
    machine.decide(START_MS)
    machine.send_ended(1, SendEnded([ChangeResult(1, WAITING)]), START_MS)
    assert (machine.in_flight.bound, list(machine.coalescer.waiting)) == ([1], [])


def test_what_another_send_has_ended_is_not_given_back_again() -> None:
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    machine.decide(START_MS)
    machine.opening_ended(SessionOpened(1, "queue", 1), START_MS)
    machine.enqueue([ChangeRef(1, TXN, "unit", "u", "e", START_MS)], START_MS)
    machine.decide(START_MS)
    machine.enqueue([ChangeRef(2, EMERGENCY, "unit", "u", "e", START_MS)], START_MS)
    (urgent,) = [action for action in machine.decide(START_MS) if isinstance(action, Send)]
    assert urgent.change_ids == (1, 2)
    machine.send_ended(1, SendEnded([ChangeResult(1, "APPLIED", 1)]), START_MS)
    machine.send_ended(2, SendFailed(never_started=True), START_MS)
    assert list(machine.coalescer.waiting) == [2]


def test_a_worker_that_is_taken_for_dead_is_given_up_with_all_its_sends(play: Play) -> None:
    fill(play, 20)
    play.take("EMERGENCY", "v")
    play.fail_send(1, silent=True)
    assert play.machine.in_flight.sends == {}
    assert play.under.opening is not None
    assert sorted(play.under.opening.in_doubt) == [*range(1, 17), 21]


@pytest.mark.parametrize("never_started", [True, False])
def test_a_send_that_nobody_took_or_that_raised_does_not_give_up_the_others(play: Play, never_started: bool) -> None:
    """Their worker is at work: their answers are worth waiting for."""
    fill(play, 20)
    play.fail_send(2, never_started=never_started)
    assert (list(play.machine.in_flight.sends), play.under.opening) == ([1], None)


@pytest.mark.parametrize(
    "late", [SendFailed(), SendEnded([ChangeResult(9, WAITING)], session_open=False, banned_ms=900_000)]
)
def test_what_a_send_that_was_given_up_says_later_does_not_disturb_the_next_session(
    play: Play, late: SendEnded | SendFailed
) -> None:
    fill(play, 20)
    play.fail_send(1, silent=True)
    play.end_open()
    sends, waiting = sent(play), list(play.machine.coalescer.waiting)
    play.machine.send_ended(2, late, play.now_ms, epoch=1)
    play.step()
    assert (sent(play), list(play.machine.coalescer.waiting)) == (sends, waiting)
    assert (play.machine.session.lost, play.machine.breaker.state) == (False, BreakerState.CLOSED)


def test_a_halt_that_a_send_reports_after_it_was_given_up_counts(play: Play) -> None:
    fill(play, 20)
    play.fail_send(1, silent=True)
    play.machine.send_ended(2, SendEnded([], halted="invariant violated: a gap"), play.now_ms, epoch=1)
    assert play.machine.breaker.state is BreakerState.HALTED


def test_a_session_whose_worker_has_ended_is_given_up_with_all_its_sends(play: Play) -> None:
    fill(play, 20)
    play.end_worker()
    assert play.machine.in_flight.sends == {}
    assert play.under.opening is not None
    assert sorted(play.under.opening.in_doubt) == [*range(1, 17)]


def test_an_idle_session_whose_worker_has_ended_is_opened_elsewhere_before_anything_is_due(play: Play) -> None:
    play.end_worker()
    assert play.under.opening is not None


def test_the_end_of_a_worker_that_does_not_hold_the_session_is_ignored(play: Play) -> None:
    fill(play, 20)
    play.end_worker("another")
    assert (list(play.machine.in_flight.sends), play.under.opening) == ([1, 2], None)


def test_a_worker_that_has_ended_twice_costs_one_session(play: Play) -> None:
    fill(play, 20)
    task_queue = play.machine.session.task_queue
    play.end_worker(task_queue)
    first = play.under.opening
    play.end_worker(task_queue)
    assert play.under.opening is first is not None


def test_two_urgent_batches_are_in_flight_and_no_third(play: Play) -> None:
    fill(play, 20)
    for unit in "vwx":
        play.take("EMERGENCY", unit)
    assert sent(play)[2:] == [(21,), (22,)]
    play.end_send(3)
    assert sent(play)[2:] == [(22,), (23,)]


def test_the_operations_of_one_entity_share_a_send_in_their_order(play: Play) -> None:
    fill(play, 10, unit="u")
    assert sent(play) == [tuple(range(1, 9)), (9, 10)]
    play.end_send(1)
    play.end_send(2)
    assert journal(play) == list(range(1, 11))


def test_a_pause_ends_the_sends_in_flight(play: Play) -> None:
    fill(play, 20)
    operators.pause(play.machine, "ana", "a look")
    play.step()
    assert play.under.closing is not None


def test_a_new_run_waits_for_no_send_but_tells_them_to_end(play: Play) -> None:
    fill(play, 20)
    play.machine.draining = True
    play.step()
    assert play.under.stopped == [1, 2]
    play.end_send(1)
    assert len(play.machine.coalescer.waiting) == 12


@pytest.mark.parametrize(("debounce_ms", "operations"), [(120_000, 60), (60_000, 30), (1_000, 15)])
def test_a_send_to_a_quick_host_lasts_a_hundredth_of_the_debounce(debounce_ms: int, operations: int) -> None:
    machine = Machine(WriterPolicy(debounce_ms=debounce_ms), START_MS)
    machine.finish_loading(START_MS)
    machine.load.service_ms = 20.0
    machine.enqueue((ChangeRef(one, TXN, "unit", f"u{one}", "e", START_MS) for one in range(1, 201)), START_MS)
    machine.decide(START_MS)
    machine.opening_ended(SessionOpened(1, "queue", 1), START_MS)
    sends = [action for action in machine.decide(START_MS) if isinstance(action, Send)]
    assert [len(send.change_ids) for send in sends] == [operations, operations]


def sizes_of_sends(debounce_ms: int, since_txn_ms: int | None) -> list[int]:
    """Of the sends of 50 LWW keys at 400 ms, so long after a TXN change arrived and was sent; None: none arrived."""
    at_ms = START_MS + (since_txn_ms or 0)
    machine = Machine(WriterPolicy(debounce_ms=debounce_ms), START_MS)
    machine.finish_loading(START_MS)
    machine.load.service_ms = 400.0
    if since_txn_ms is not None:
        machine.load.arrived(TXN, START_MS)
    old_ms = at_ms - machine.policy.max_wait_ms
    machine.enqueue((ChangeRef(one, LWW, "unit", f"u{one}", "e", old_ms) for one in range(1, 51)), at_ms)
    machine.decide(at_ms)
    machine.opening_ended(SessionOpened(1, "queue", 1), at_ms)
    return [len(action.change_ids) for action in machine.decide(at_ms) if isinstance(action, Send)]


@pytest.mark.parametrize(("since_txn_ms", "operations"), [(None, 16), (0, 8), (59_999, 8), (60_000, 16)])
def test_a_send_lasts_twice_as_long_while_no_txn_change_has_arrived_for_a_minute(
    since_txn_ms: int | None, operations: int
) -> None:
    assert sizes_of_sends(120_000, since_txn_ms) == [operations, operations]


def test_txn_changes_that_a_new_run_reads_from_its_backlog_do_not_shorten_its_sends() -> None:
    machine = Machine(WriterPolicy(), START_MS)
    machine.decide(START_MS)
    machine.took_page(LoadOutstanding(Part.EMERGENCIES, 0), [], 0, False, START_MS)
    refs = [ChangeRef(one, TXN, "unit", f"u{one}", "e", START_MS) for one in range(1, 51)]
    machine.took_page(LoadOutstanding(Part.REST, 0), refs, 50, True, START_MS)
    machine.decide(START_MS)
    machine.opening_ended(SessionOpened(1, "queue", 1), START_MS)
    sends = [action for action in machine.decide(START_MS) if isinstance(action, Send)]
    assert [len(send.change_ids) for send in sends] == [16, 16]


def test_no_send_is_much_longer_than_a_short_debounce() -> None:
    assert sizes_of_sends(60_000, None) == [10, 10]
    assert sizes_of_sends(10_000, None) == [8, 8]


def test_at_a_fast_host_a_send_holds_what_fills_its_time(play: Play) -> None:
    play.machine.load.service_ms = SEND_FILL_MS / 5
    operators.pause(play.machine, "ana", "to fill up")
    for number in range(12):
        play.take("TXN", f"u{number}")
    operators.resume(play.machine)
    play.end_close()
    play.end_open()
    assert sent(play) == [(1, 2, 3, 4, 5), (6, 7, 8, 9, 10)]


def test_a_burst_of_emergencies_of_few_units_is_given_out_in_the_order_of_their_ids(play: Play) -> None:
    fill(play, 20)
    for number in range(152):
        play.accept("EMERGENCY", f"v{number % 30}", f"e{number}")
    play.deliver()
    urgent: dict[int, Send] = {}
    while play.machine.in_flight.urgent:
        urgent |= {number: play.under.sends[number] for number in play.machine.in_flight.urgent}
        play.end_send(next(iter(play.machine.in_flight.urgent)))
    assert [one for send in urgent.values() for one in send.change_ids] == list(range(21, 173))
    assert [send.sequence for send in urgent.values()] == list(range(1, len(urgent) + 1))


def test_a_new_run_counts_its_sessions_urgent_sends_on(play: Play) -> None:
    play.take("EMERGENCY", "v")
    play.carry_over()
    play.take("EMERGENCY", "w")
    assert [send.sequence for send in play.under.sends.values()] == [2, 3]
