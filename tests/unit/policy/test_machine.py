"""The machine: session, bans, settling, operators, alerts; one fact each, by playing it against the books."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.changes import BOUND, WAITING, ChangeRef, ChangeResult, Outcome, PriorityClass
from oldhost_sync.policy.machine import operators
from oldhost_sync.policy.machine.actions import WriterCondition
from oldhost_sync.policy.machine.conditions import Reports, conditions
from oldhost_sync.policy.machine.events import OpeningPostponed, SendEnded, SessionOpened
from oldhost_sync.policy.machine.machine import Machine, Pause
from oldhost_sync.policy.machine.operators import Refused
from oldhost_sync.policy.machine.session import BreakerState, Phase
from oldhost_sync.policy.queue.operations import label_of
from oldhost_sync.policy.rules.operator_act import OperatorAct
from oldhost_sync.policy.tuning import (
    CONDITION_CHANGES_MS,
    NO_PROGRESS_MS,
    REOPEN_MS_MAX,
    WriterPolicy,
)
from tests.unit.policy.play import START_MS, Play, journal, sent
from tests.workflows.books import Reply
from workflows import status_report

BAN_MS = 900_000


def told(play: Play, kind: str) -> list[str]:
    return [alert.message for alert in play.alerts if alert.kind == kind and not alert.close]


def closed(play: Play) -> list[str]:
    return [alert.cause for alert in play.alerts if alert.close]


# ------------------------------------------------------------------------------------------------------------ sending


def test_nothing_is_sent_before_a_session_is_open() -> None:
    play = Play()
    play.take("EMERGENCY", "u")
    assert sent(play) == []
    play.end_open()
    assert sent(play) == [(1,)]


def test_two_batches_are_in_flight_and_no_third(play: Play) -> None:
    for unit in "abc":
        play.take("TXN", unit)
    assert sent(play) == [(1,), (2,)]


def test_a_label_says_what_goes_and_names_no_payload(play: Play) -> None:
    play.take("TXN", "u7", payload="secret")
    assert [label_of(list(play.machine.in_flight))] == ["TXN unit u7 txn_a #1"]


def test_reports_may_come_in_any_order(play: Play) -> None:
    play.take("TXN", "a")
    play.take("TXN", "b")
    play.end_send(2)
    play.end_send(1)
    assert journal(play) == [1, 2]
    assert len(play.machine.in_flight) == 0


def test_trap_10_the_end_of_version_1_says_nothing_of_version_2(play: Play) -> None:
    play.take("LWW", "u", payload="one")
    play.advance(120_000)
    play.take("LWW", "u", payload="two")
    play.end_send(1)
    assert play.books.changes[1].outcome is Outcome.APPLIED
    assert play.books.changes[2].outcome is None
    assert 2 in play.machine.coalescer.waiting


# ---------------------------------------------------------------------------------------------------------- recovery


def test_a_lost_reply_is_decided_before_anything_new_is_sent(play: Play) -> None:
    play.take("TXN", "a")
    play.end_send(1, lambda _: Reply.LOST_AFTER)
    play.take("EMERGENCY", "b")
    assert sent(play) == []
    assert play.under.opening is not None
    assert play.under.opening.in_doubt == (1,)


def test_what_is_bound_goes_first_and_before_an_emergency(play: Play) -> None:
    play.take("TXN", "a")
    play.end_send(1, lambda _: Reply.LOST_BEFORE)
    play.take("EMERGENCY", "b")
    play.end_open()
    play.advance(5_000)
    play.end_open()
    assert sent(play) == [(1,), (2,)]


def test_a_send_that_never_started_leaves_nothing_in_doubt(play: Play) -> None:
    play.take("TXN", "a")
    play.fail_send(1, never_started=True)
    assert play.under.opening is not None
    assert play.under.opening.in_doubt == ()


def test_the_ledgers_order_of_bound_operations_is_kept(play: Play) -> None:
    """Even when one of them was bound before, and earlier ones are bound again after the host went back."""
    for unit in "ab":
        play.take("TXN", unit)
    play.end_send(1)
    play.end_send(2, lambda _: Reply.LOST_BEFORE)
    play.advance(5_000)
    play.end_open()
    play.end_send(3, lambda _: Reply.LOST_BEFORE)
    play.books.oldhost.restore(1)
    play.advance(5_000)
    play.end_open()
    play.resolve("resend")
    play.end_open()
    assert sent(play) == [(1, 2)]


def test_a_report_that_leaves_a_change_out_ends_the_session(play: Play) -> None:
    play.take("TXN", "a")
    del play.under.sends[1]
    play.in_flight.clear()
    play.machine.send_ended(1, SendEnded([ChangeResult(1, BOUND)], service_ms=400), play.now_ms)
    play.step()
    assert play.under.opening is not None
    assert play.under.opening.in_doubt == (1,)


def test_opening_is_tried_ever_more_slowly_up_to_half_a_minute() -> None:
    play = Play()
    waits = []
    for _ in range(8):
        play.fail_open()
        waits.append(play.machine.session.until_ms - play.now_ms)
        play.advance(waits[-1])
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, REOPEN_MS_MAX, REOPEN_MS_MAX, REOPEN_MS_MAX]
    assert len(told(play, "no-session")) == 1


def test_a_session_that_opens_when_all_is_halted_is_closed_again() -> None:
    play = Play()
    play.machine.violated("a rule of ours")
    play.step()
    assert play.under.opening is not None
    play.books.halted = ""  # the halt is not in the books yet
    play.end_open()
    assert play.machine.breaker.state is BreakerState.HALTED
    assert play.under.closing is not None


def test_a_broken_invariant_halts_and_is_made_durable(play: Play) -> None:
    play.machine.violated("a rule of ours")
    play.step()
    assert play.machine.breaker.state is BreakerState.HALTED
    assert play.books.halted == "invariant violated: a rule of ours"
    assert told(play, "halted")


def test_a_paused_machine_lets_the_connection_go(play: Play) -> None:
    operators.pause(play.machine, "ana", "maintenance")
    play.step()
    assert play.under.closing is not None


def test_nothing_is_opened_while_paused() -> None:
    play = Play()
    operators.pause(play.machine, "ana", "maintenance")
    play.fail_open()
    play.advance(60_000)
    assert play.under.opening is None


# --------------------------------------------------------------------------------------------------------------- bans


def test_a_ban_stops_sending_until_oldhost_was_asked(play: Play) -> None:
    play.take("TXN", "a")
    play.end_send(1, lambda _: Reply.BAN)
    play.take("EMERGENCY", "b")
    asking = []
    for wait_ms in (BAN_MS - 1, 1):
        play.advance(wait_ms)
        asking.append(play.under.opening is not None)
    assert asking == [False, True]
    assert sent(play) == []


def test_emergencies_that_can_not_go_are_one_alert_with_their_number(play: Play) -> None:
    """The one that was banned itself, and those that came in the ban; told again as they grow, and
    no more often than that."""
    play.take("EMERGENCY", "a")
    play.end_send(1, lambda _: Reply.BAN)
    for unit in "bcd":
        play.take("EMERGENCY", unit)
    play.advance(CONDITION_CHANGES_MS)
    blocked = [(alert.cause, alert.count) for alert in play.alerts if alert.kind == "emergency-blocked"]
    assert blocked == [("emergencies:ban", 1), ("emergencies:ban", 4)]
    assert "The oldest is change 1." in told(play, "emergency-blocked")[1]


def test_a_ban_and_what_it_blocks_are_over_when_oldhost_takes_operations_again(play: Play) -> None:
    play.take("EMERGENCY", "a")
    play.end_send(1, lambda _: Reply.BAN)
    play.advance(BAN_MS)
    assert closed(play) == []
    play.end_open()
    assert {*closed(play)} == {"ban", "emergencies:ban"}


def test_what_blocks_emergencies_next_is_told_under_its_own_name(play: Play) -> None:
    play.take("EMERGENCY", "a")
    play.end_send(1, lambda _: Reply.BAN)
    operators.pause(play.machine, "ana", "a look")
    play.step()
    assert "emergencies:ban" in closed(play)
    assert [alert.cause for alert in play.alerts if alert.kind == "emergency-blocked"][-1] == "emergencies:pause"


def reported(play: Play) -> list[str]:
    """The causes in the next list; none if there is no list."""
    return [each.cause for report in play.reports.due(play.now_ms) for each in (*report.conditions, *report.events)]


def test_one_list_is_recorded_at_a_time_and_the_next_has_what_is_the_case_then(play: Play) -> None:
    operators.pause(play.machine, "ana", "a look")
    play.machine.halt("foreign")
    (first,) = play.reports.due(play.now_ms)
    play.machine.halt("worse")
    assert play.reports.due(play.now_ms) == []
    play.reports.recorded()
    play.now_ms += CONDITION_CHANGES_MS
    (second,) = play.reports.due(play.now_ms)
    assert [each.why for each in second.conditions] == ["Sending is halted: worse. Find out why, then resolve."]
    assert second.sequence > first.sequence


def test_a_list_that_was_not_recorded_is_recorded_as_it_was_before_the_next(play: Play) -> None:
    """It may have been recorded after all: its number says so, and its events count once."""
    play.machine.halt("foreign")
    play.reports.missed(2)
    (first,) = play.reports.due(play.now_ms)
    play.reports.missed(3)
    play.reports.not_recorded()
    assert play.reports.due(play.now_ms) == [first]
    play.reports.recorded()
    (second,) = play.reports.due(play.now_ms)
    assert [each.count for each in second.events] == [3]


def test_events_of_one_cause_are_counted_together_until_they_are_recorded(play: Play) -> None:
    play.reports.missed(2)
    play.reports.missed(3)
    (report,) = play.reports.due(play.now_ms)
    assert [(each.kind, each.count) for each in report.events] == [("strays", 5)]


def test_the_next_run_records_what_this_one_has_not_recorded_and_nothing_twice(play: Play) -> None:
    play.machine.halt("foreign")
    (under_way,) = play.reports.due(play.now_ms)
    play.reports.happened(WriterCondition("unreadable-signal", "no JSON", "unreadable-signals"))
    play.reports = Reports(play.machine, play.reports.dump())
    assert play.reports.due(play.now_ms) == [under_way]
    play.reports.recorded()
    assert reported(play) == ["halt", "unreadable-signals"]
    play.reports.recorded()
    play.reports = Reports(play.machine, play.reports.dump())
    assert reported(play) == []


def test_a_draining_writer_leaves_its_list_to_the_next_run(play: Play) -> None:
    play.machine.halt("foreign")
    play.machine.draining = True
    assert reported(play) == []


# ----------------------------------------------------------------------------------------------------------- progress


def test_a_standstill_is_told_within_twenty_seconds_with_the_last_word_on_it(play: Play) -> None:
    play.take("TXN", "a")
    play.end_send(1, lambda _: Reply.LOST_BEFORE)
    for _ in range(10):
        play.under.opening = None
        play.machine.opening_ended(OpeningPostponed(2_000, "busy", "OldHost says that it is busy"), play.now_ms)
        play.advance(2_000)
    assert play.machine.watch_at_ms() is None
    (text,) = told(play, "no-progress")
    assert "busy: OldHost says that it is busy" in text
    assert status_report.state(play.machine) == "BUSY"


def test_a_standstill_is_over_with_the_next_fate(play: Play) -> None:
    play.take("TXN", "a")
    play.advance(NO_PROGRESS_MS)
    assert told(play, "no-progress")
    play.end_send(1)
    assert "no-progress" in closed(play)


def test_a_host_that_needs_a_minute_for_an_operation_does_not_stand_still_in_it(play: Play) -> None:
    play.machine.load.served(300_000)  # weighs a fifth: some 60 s
    play.take("TXN", "a")
    play.advance(100_000)
    assert told(play, "no-progress") == []
    play.advance(60_000)
    assert told(play, "no-progress")


@pytest.mark.parametrize("nothing", ["waits", "is sent while paused"])
def test_no_standstill_is_told_where_nothing_could_go(play: Play, nothing: str) -> None:
    if nothing != "waits":
        operators.pause(play.machine, "ana", "a look")
        play.step()
        play.take("TXN", "a")
    play.advance(10 * NO_PROGRESS_MS)
    assert told(play, "no-progress") == []


def test_sessions_that_bring_nothing_come_ever_more_slowly(play: Play) -> None:
    """OldHost closes each connection after the answers that opened it."""
    play.take("TXN", "a")
    pauses = []
    for _ in range(8):
        number = next(iter(play.under.sends))
        play.fail_send(number, never_started=True)
        began = play.now_ms
        while play.under.opening is None:
            play.advance(1_000)
        pauses.append((play.now_ms - began) // 1_000)
        play.end_open()
    assert pauses == [0, 1, 2, 4, 8, 16, 30, 30]
    assert told(play, "no-progress")


def test_a_halt_that_a_send_found_is_resolved_before_its_ban_is_over(play: Play) -> None:
    play.take("TXN", "a")
    machine = play.machine
    found = SendEnded([ChangeResult(1, BOUND)], session_open=False, banned_ms=BAN_MS, halted="foreign", never_taken=1)
    machine.send_ended(1, found, play.now_ms)
    assert (machine.breaker.state, machine.breaker.reason) == (BreakerState.HALTED, "foreign")
    assert [each.kind for each in conditions(machine, play.now_ms)] == ["ban", "halted"]
    # The session may have failed to keep it: else nobody could resolve it.
    assert OperatorAct("", "halt", "writer", "foreign", 1) in machine.decide(play.now_ms)
    operators.resolve(machine, play.now_ms)
    assert (machine.breaker.state, machine.breaker.reason) == (BreakerState.OPEN, "banned by OldHost")


def test_a_halt_that_a_send_found_before_the_resolve_is_for_the_books_to_judge(play: Play) -> None:
    """Both of a session's sends find it; an operator has decided about the first when the second is told."""
    play.take("TXN", "a")
    machine = play.machine
    machine.halt("foreign")
    operators.resolve(machine, play.now_ms, epoch=machine.session.epoch + 1)
    found = SendEnded([ChangeResult(1, BOUND)], session_open=False, halted="foreign")
    machine.send_ended(1, found, play.now_ms, epoch=machine.session.epoch)
    assert machine.breaker.state is BreakerState.HALF_OPEN
    assert OperatorAct("", "halt", "writer", "foreign", epoch=machine.session.epoch) in machine.decide(play.now_ms)


# ---------------------------------------------------------------------------------------------------------- operators


def test_operators_are_refused_what_makes_no_sense(play: Play) -> None:
    with pytest.raises(Refused, match="not paused"):
        operators.resume(play.machine)
    operators.pause(play.machine, "ana", "lunch")
    with pytest.raises(Refused, match="already paused by ana: lunch"):
        operators.pause(play.machine, "ben", "too")
    with pytest.raises(Refused, match="not halted"):
        operators.resolve(play.machine, play.now_ms)


def test_a_rebuilt_machine_is_paused_as_the_lost_one_was(play: Play) -> None:
    play.pause_or_resume()
    play.rebuild()
    assert play.machine.paused == Pause("ana", "a look")
    assert play.under.opening is None


def test_a_rebuilt_machine_waits_for_the_rest_of_a_ban(play: Play) -> None:
    play.take("TXN", "a")
    play.end_send(1, lambda _: Reply.BAN)
    play.advance(1000)
    play.rebuild()
    assert play.machine.breaker.state is BreakerState.OPEN
    assert play.machine.breaker.until_ms == play.now_ms - 1000 + BAN_MS


# ------------------------------------------------------------------------------------------------------------ counting


def test_the_counters_tell_every_fate(play: Play) -> None:
    play.take("LWW", "a", payload="x")
    play.take("LWW", "a", payload="y")
    play.take("TXN", "b")
    play.drain_unless_halted()
    play.take("LWW", "a", payload="y")
    play.drain_unless_halted()
    counters = play.machine.counters
    assert (counters.received, counters.applied, counters.superseded, counters.no_op) == (4, 2, 1, 1)


def test_a_change_held_already_is_no_new_one(play: Play) -> None:
    ref = ChangeRef(1, PriorityClass.LWW, "unit", "u", "status", play.now_ms)
    assert play.machine.enqueue([ref, ref], play.now_ms) == 1


def test_strays_are_taken_and_told(play: Play) -> None:
    play.accept("TXN", "a")
    play.lose()
    play.advance(60_000)
    play.end_sweep()
    assert sent(play) == [(1,)]
    assert told(play, "strays") == [
        "The sweep found 1 outstanding changes that the writer did not hold; it sends them now."
    ]


@pytest.mark.parametrize(("cls", "again"), [("TXN", 1), ("LWW", 2)])
def test_what_ended_while_a_page_was_read_is_no_stray(play: Play, cls: str, again: int) -> None:
    refs = [play.accept(cls, "a", payload=str(number)) for number in range(again)]
    play.deliver()
    play.advance(120_000)
    assert play.under.sweep
    page_read_before = [ref for ref in refs if not play.books.changes[ref.change_id].outcome]
    play.end_send(1)
    received = play.machine.counters.received
    missed = play.machine.swept(page_read_before, refs[-1].change_id, more=False, now_ms=play.now_ms)
    play.step()
    assert page_read_before == refs
    assert missed == 0
    assert (play.machine.counters.received, len(play.machine.coalescer.waiting)) == (received, 0)


def test_an_operation_that_no_session_can_end_is_told_once_and_until_it_ends(play: Play) -> None:
    stuck = play.take("TXN", "a")
    for number in range(1, 9):
        play.end_send(number, lambda _: Reply.LOST_BEFORE)
        play.advance(REOPEN_MS_MAX)
        play.end_open()
    assert [alert.change_id for alert in play.alerts if alert.kind == "goes-nowhere"] == [stuck]
    play.end_send(9)
    assert "goes-nowhere" in closed(play)
    assert play.machine.session.sessions_without_progress == 0


def test_answers_lost_one_after_the_other_are_told_though_each_operation_is_found_applied(play: Play) -> None:
    for number in range(1, 5):
        play.take("TXN", f"u{number}")
        play.end_send(number, lambda _: Reply.LOST_AFTER)
        play.advance(REOPEN_MS_MAX)
        play.end_open()
        assert len(told(play, "answers-lost")) == (number >= 3)
    play.take("TXN", "a")
    play.end_send(5)
    assert "answers" in closed(play)


def test_sessions_without_anything_in_doubt_are_not_fruitless(play: Play) -> None:
    """What was stuck was resolved otherwise (an operator's decision, a newer change): neither an
    error nor an alert is left."""
    play.take("TXN", "a")
    for number in range(1, 6):
        play.end_send(number, lambda _: Reply.LOST_BEFORE)
        play.advance(REOPEN_MS_MAX)
        play.end_open()
    assert told(play, "goes-nowhere")
    machine = play.machine
    machine.session.phase = Phase.OPENING
    machine.opening_ended(SessionOpened(9, "queue", 1, [ChangeResult(1, WAITING)]), play.now_ms)
    assert machine.session.sessions_without_progress == 0
    assert "goes-nowhere" not in [each.cause for each in conditions(machine, play.now_ms)]


def test_what_is_read_again_is_no_arrival() -> None:
    machine = Machine(WriterPolicy(), START_MS)
    refs = [ChangeRef(n, PriorityClass.TXN, "unit", f"u{n}", "booking", START_MS) for n in range(1, 1001)]
    machine.enqueue(refs, START_MS, sweep=True)
    machine.finish_loading(START_MS)
    machine.decide(START_MS + 60_000)
    assert machine.load.arrivals_per_s == 0


def test_an_idle_machine_wakes_for_its_probe_and_its_sweep_only(play: Play) -> None:
    assert play.machine.session.phase is Phase.OPEN
    assert play.machine.wake_at_ms() == min(play.machine.probe_at_ms, play.machine.sweeping.at_ms)


def test_a_draining_machine_is_not_woken_for_what_it_no_longer_begins(play: Play) -> None:
    """Its time would have come at once, again and again: for ever where Temporal's clock stands still."""
    play.machine.session.phase = Phase.OPENING
    play.machine.opening_ended(OpeningPostponed(1_000, "unreachable"), play.now_ms)
    play.machine.draining = True
    play.advance(play.machine.sweeping.at_ms - play.now_ms + 1_000)
    assert play.machine.session.phase is Phase.PAUSING
    assert play.machine.wake_at_ms() is None


def test_emergencies_behind_a_halt_are_told_with_its_reason(play: Play) -> None:
    play.machine.halt("OldHost went back. Decide by `resolve`.")
    play.take("EMERGENCY", "a")
    (told,) = [alert.message for alert in play.alerts if alert.kind == "emergency-blocked"]
    assert "sending is halted: OldHost went back. Decide by `resolve`. The oldest is change" in told
