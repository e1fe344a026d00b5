"""What follows each ambiguous or refused end, on a real OldHost and a real ledger."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import asdict, dataclass, replace

import pytest

from oldhost_sync.drivers.http.response import Response
from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.policy.machine.events import OpeningHalted, OpeningPostponed
from tests.integration.session.stage import Process, Stage, StageLimits, outcomes, send

pytestmark = pytest.mark.mariadb


def test_a_batch_is_applied_in_order_on_one_connection(stage: Stage) -> None:
    ids = [stage.world.record(f"u{number}") for number in range(20)]
    sent = send(stage.session(), ids)
    assert outcomes(sent) == ["APPLIED"] * 20
    assert stage.applied_ids() == ids
    assert stage.stats()["connections"] == 1
    stage.check_clean()


@pytest.mark.parametrize("fault", ["drop_after", "cut_reply"])
def test_a_lost_reply_is_found_applied(stage: Stage, fault: str) -> None:
    first, second = stage.world.record("u1"), stage.world.record("u2")
    session = stage.session()
    stage.fault(fault, next=1)
    sent = send(session, [first, second])
    assert outcomes(sent) == ["BOUND", "BOUND"], "the second was marked, but not written"
    assert not sent.session_open
    opened = stage.opening()
    assert [(fate.change_id, fate.outcome) for fate in opened.event.fates] == [(first, "APPLIED")]
    assert [ref[0] for ref in opened.event.bound] == [second]
    assert outcomes(send(opened.session, [second])) == ["APPLIED"]
    assert stage.applied_ids() == [first, second]
    stage.check_clean()


@pytest.mark.parametrize("fault", ["drop_after", "cut_reply"])
def test_an_operation_that_was_applied_is_not_waited_for(stage: Stage, fault: str) -> None:
    """OldHost expects a nonce beyond all that may have been written: nothing of it can still come."""
    first, second = stage.world.record("u1"), stage.world.record("u2")
    session = stage.session()
    stage.fault(fault, next=1)
    send(session, [first, second])
    opened = stage.open()
    assert isinstance(opened, Opened)
    assert outcomes(opened.event.fates) == ["APPLIED"]
    assert outcomes(send(opened.session, [second])) == ["APPLIED"]
    stage.check_clean()


def test_an_operation_that_is_not_applied_yet_is_waited_for(stage: Stage) -> None:
    session = stage.session()
    stage.fault("drop_before", next=1)
    send(session, [stage.world.record()])
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == "settle"
    assert waiting.wait_ms > 1000


def test_trap_15_a_request_dropped_unread_is_sent_again_byte_identical(stage: Stage) -> None:
    """What OldHost got is what the first request carried, though the outbox would give another body by now."""
    change_id = stage.world.record("u1", payload={"note": "exact"})
    process = Process()
    session = stage.session(process)
    stage.fault("drop_before", next=1)
    assert outcomes(send(session, [change_id])) == ["BOUND"]
    (request,) = process.requests
    stage.world.execute("UPDATE outbox_events SET payload = %s", '{"note": "other"}')
    opened = stage.opening()
    assert [ref[0] for ref in opened.event.bound] == [change_id]
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]
    (entry,) = stage.control(lambda controls: controls.journal(0))
    assert entry.raw_sha256 == hashlib.sha256(request.split(b"\r\n\r\n", 1)[1]).hexdigest()
    assert entry.body["payload"] == {"note": "exact"}
    stage.check_clean()


def test_trap_01_premature_resend_waits_for_settle_time(stage: Stage) -> None:
    change_id = stage.world.record()
    session = stage.session()
    stage.fault("apply_late", next=1, delay_ms=150)
    assert outcomes(send(session, [change_id])) == ["BOUND"]
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == "settle"
    assert 0 < waiting.wait_ms <= 3000
    stage.wait_for(lambda: stage.applied_ids() == [change_id])
    stage.world.age(waiting.wait_ms / 1000)
    opened = stage.open()
    assert isinstance(opened, Opened)
    assert outcomes(opened.event.fates) == ["APPLIED"]
    stage.check_clean()


def test_what_is_applied_late_is_known_before_the_settle_time_is_over(stage: Stage) -> None:
    change_id = stage.world.record()
    session = stage.session()
    stage.limits = replace(stage.limits, early_look_pauses=(0.05,) * 40)
    stage.fault("apply_late", next=1, delay_ms=150)
    assert outcomes(send(session, [change_id])) == ["BOUND"]
    opened = stage.open()
    assert isinstance(opened, Opened)
    assert outcomes(opened.event.fates) == ["APPLIED"]
    stage.check_clean()


def in_doubt(stage: Stage) -> int:
    """An operation that OldHost never read, when the settle time is over; nobody has reached OldHost since."""
    change_id, session = stage.world.record(), stage.session()
    stage.fault("garbage", next=1, reply="bytes", applied=False)
    assert outcomes(send(session, [change_id])) == ["BOUND"]
    stage.world.age(stage.limits.settle_seconds)
    return change_id


def test_the_end_of_the_settle_time_is_waited_for_in_the_opening_if_it_is_near(stage: Stage) -> None:
    stage.limits = replace(stage.limits, early_look_pauses=(stage.limits.settle_seconds,))
    change_id, session = stage.world.record(), stage.session()
    stage.fault("garbage", next=1, reply="bytes", applied=False)
    assert outcomes(send(session, [change_id])) == ["BOUND"]
    stage.world.age(stage.limits.settle_seconds - 0.3)
    opened = stage.open()
    assert isinstance(opened, Opened)
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]
    stage.check_clean()


def questions(stage: Stage) -> int:
    """Those of one opening."""
    process = Process()
    assert isinstance(stage.open(process), Opened)
    return process.calls.count("ask")


def test_not_applied_is_asked_again_a_while_after_oldhost_was_first_reached(stage: Stage) -> None:
    in_doubt(stage)
    assert questions(stage) == 4


@dataclass(frozen=True)
class SlowToApply(StageLimits):
    """OldHost may take so long to apply what it has read."""

    @property
    def late_seconds(self) -> float:
        return 1.0


def test_what_oldhost_applies_late_is_waited_for_also_when_the_settle_time_is_over(stage: Stage) -> None:
    """The network may have held the request back until OldHost was reached again."""
    change_id, session = stage.world.record(), stage.session()
    stage.limits = SlowToApply(**asdict(stage.limits))
    stage.fault("apply_late", next=1, delay_ms=800)
    assert outcomes(send(session, [change_id])) == ["BOUND"]
    stage.world.age(stage.limits.settle_seconds)
    opened = stage.open()
    assert isinstance(opened, Opened)
    assert outcomes(opened.event.fates) == ["APPLIED"]
    stage.check_clean()


def test_it_is_not_asked_again_where_oldhost_was_reached_long_enough_before(stage: Stage) -> None:
    in_doubt(stage)
    stage.first_contact.opening(stage.world.ledger.epoch())
    stage.first_contact.answered(time.monotonic() - 1)
    assert questions(stage) == 2


@pytest.mark.parametrize("reply", ["bytes", "not_json", "status", "other_nonce"])
def test_garbage_is_never_taken_for_an_answer(stage: Stage, reply: str) -> None:
    change_id = stage.world.record()
    session = stage.session()
    stage.fault("garbage", next=1, reply=reply, applied=False)
    assert outcomes(send(session, [change_id])) == ["BOUND"]
    assert stage.world.outcome(change_id) == (None, None)
    opened = stage.opening()
    named = [ref[0] for ref in opened.event.bound] + [each for each, _ in opened.event.apart]
    assert named == [change_id], "a refusal in words gives the nonce up; bytes may be a lost answer"
    stage.rest()
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]
    stage.check_clean()


def test_silence_past_the_deadline_is_in_doubt(stage: Stage) -> None:
    change_id = stage.world.record()
    session = stage.session()
    stage.fault("hang", next=1, seconds=0.6, applied=True)
    assert outcomes(send(session, [change_id])) == ["BOUND"]
    stage.wait_for(lambda: stage.applied_ids() == [change_id])
    assert outcomes(stage.opening().event.fates) == ["APPLIED"]
    stage.check_clean()


def test_busy_sends_the_same_bytes_again_in_the_same_session(stage: Stage) -> None:
    ids = [stage.world.record("u1"), stage.world.record("u2")]
    session = stage.session()
    stage.fault("busy", next=2, retry_after=0.01)
    sent = send(session, ids)
    assert (outcomes(sent), sent.session_open) == (["APPLIED", "APPLIED"], True)
    assert stage.stats()["busy_answers"] == 2
    stage.check_clean()


def test_a_host_that_stays_busy_ends_the_session_with_nothing_lost(stage: Stage) -> None:
    change_id = stage.world.record()
    session = stage.session()
    stage.fault("busy", retry_after=0.01)
    sent = send(session, [change_id])
    assert (outcomes(sent), sent.session_open) == (["BOUND"], False)
    stage.control(lambda controls: controls.switch_off("busy"))
    opened = stage.opening()
    stage.rest()
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]
    stage.check_clean()


def test_trap_16_a_rejection_that_used_its_nonce_lets_the_batch_go_on(stage: Stage) -> None:
    ids = [stage.world.record(f"u{number}") for number in range(3)]
    session = stage.session()
    stage.fault("reject", next=1, skip=1, reason="no such room")
    sent = send(session, ids)
    assert (outcomes(sent), sent.session_open) == (["APPLIED", "DEAD", "APPLIED"], True)
    assert sent.fates[1].error == "no such room"
    assert stage.world.sync_status("u1") == "SYNC_FAILED"
    stage.check_clean()


def test_trap_16_a_rejection_that_did_not_use_its_nonce_leaves_no_hole(stage: Stage) -> None:
    ids = [stage.world.record(f"u{number}") for number in range(3)]
    session = stage.session()
    stage.fault("reject", next=1, consume=False)
    sent = send(session, ids)
    assert (outcomes(sent), sent.session_open) == (["DEAD", "WAITING", "WAITING"], False)
    opened = stage.opening()
    assert opened.event.expected_nonce == 501
    assert outcomes(send(opened.session, ids[1:])) == ["APPLIED", "APPLIED"]
    assert [(nonce, change_id) for nonce, outcome, change_id in stage.journal() if outcome == "applied"] == [
        (501, ids[1]),
        (502, ids[2]),
    ]
    stage.check_clean()


def test_trap_05_a_ban_is_remembered_and_nothing_is_sent_blindly_after_it(stage: Stage) -> None:
    change_id = stage.world.record()
    session = stage.session()
    stage.control(lambda controls: controls.ban({"seconds": 900}))
    sent = send(session, [change_id])
    assert (outcomes(sent), sent.session_open) == (["BOUND"], False)
    assert 890_000 < sent.banned_ms < 905_000
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == "ban"
    assert stage.stats()["requests"] == 3, "nobody asked during the ban"
    stage.control(lambda controls: controls.unban({}))
    opened = stage.opening()
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]
    stage.check_clean()


def test_a_ban_found_on_asking_is_remembered(stage: Stage) -> None:
    stage.control(lambda controls: controls.ban({"seconds": 640}))
    for _ in range(2):
        waiting = stage.open()
        assert isinstance(waiting, OpeningPostponed)
        assert waiting.reason == "ban"
        assert 630_000 < waiting.wait_ms < 645_000
    assert stage.stats()["banned_requests"] == 1


def test_a_foreign_write_before_our_first_send_halts(stage: Stage) -> None:
    change_id = stage.world.record()
    session = stage.session()
    stage.control(lambda controls: controls.foreign_write({}))
    sent = send(session, [change_id])
    assert (outcomes(sent), sent.session_open) == (["BOUND"], False)
    assert sent.banned_ms > 890_000
    assert "another client wrote" in sent.halted
    halted = stage.open()
    assert isinstance(halted, OpeningHalted)
    assert "another client wrote" in halted.message
    assert stage.world.decide("resolve", mode="resend") == ""
    stage.control(lambda controls: controls.unban({}))
    opened = stage.opening()
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]
    assert stage.journal()[-1] == (502, "applied", change_id)


def test_trap_04_a_foreign_write_found_at_connect_halts(stage: Stage) -> None:
    send(stage.session(), [stage.world.record()])
    stage.close()
    stage.control(lambda controls: controls.foreign_write({}))
    halted = stage.open()
    assert isinstance(halted, OpeningHalted)
    assert "expects nonce 503" in halted.message


def test_trap_04_a_host_that_went_back_halts_and_gets_its_operations_again(stage: Stage) -> None:
    ids = [stage.world.record(f"u{number}") for number in range(5)]
    send(stage.session(), ids)
    stage.close()
    stage.control(lambda controls: controls.restore({"expected_nonce": 503}))
    halted = stage.open()
    assert isinstance(halted, OpeningHalted)
    assert "went back" in halted.message
    assert stage.world.decide("resolve", mode="resend") == ""
    opened = stage.opening()
    bound = [ref[0] for ref in opened.event.bound]
    assert bound == ids[2:]
    assert outcomes(send(opened.session, bound)) == ["APPLIED"] * 3
    assert stage.stats()["expected_nonce"] == 506
    stage.check_clean()


def test_a_ledger_that_contradicts_itself_halts_at_the_takeover(stage: Stage) -> None:
    """Its row was set back by a hand, behind an operation that is in doubt: no session must come of it."""
    session = stage.session()
    stage.fault("drop_before", next=1)
    send(session, [stage.world.record()])
    stage.world.execute("UPDATE nonce_ledger SET last_applied_nonce = 400, next_nonce = 401")
    halted = stage.open()
    assert isinstance(halted, OpeningHalted)
    assert "invariant violated" in halted.message
    assert stage.world.halted() == halted.message


def test_a_ledger_set_back_under_an_open_session_halts_with_oldhosts_count_and_one_resolve_ends_it(
    stage: Stage,
) -> None:
    """As by a fail-over to a replica that lacked the last commits: the session notices first, what
    it halts on has no count."""
    session = stage.session()
    send(session, [stage.world.record(f"u{number}") for number in range(3)])
    stage.world.execute("DELETE FROM nonce_requests")
    stage.world.execute("UPDATE nonce_ledger SET last_applied_nonce = 500, next_nonce = 501")
    change_id = stage.world.record("after")
    sent = send(session, [change_id])
    assert (sent.session_open, sent.halted) == (False, "")
    halted = stage.open()
    assert isinstance(halted, OpeningHalted)
    assert "invariant violated" in halted.message
    assert "OldHost expects nonce 504" in halted.message
    assert stage.world.decide("resolve", mode="adopt") == ""
    assert outcomes(send(stage.session(), [change_id])) == ["APPLIED"]
    assert stage.journal()[-1] == (504, "applied", change_id)


def test_trap_04_a_probe_compares_and_ends_a_session_that_disagrees(stage: Stage) -> None:
    session = stage.session()
    assert session.probe(lambda: None).session_open
    stage.control(lambda controls: controls.foreign_write({}))
    probed = session.probe(lambda: None)
    assert (probed.session_open, probed.expected_nonce) == (False, 502)
    assert isinstance(stage.open(), OpeningHalted)


def test_a_probe_asks_nothing_while_a_send_runs(stage: Stage) -> None:
    stage.control(lambda controls: controls.latency({"latency_ms": 300}))
    on_the_wire = threading.Event()

    def hook(call: str, when: str) -> None:
        if (call, when) == ("write", "after"):
            on_the_wire.set()

    process = Process(hook)
    session = stage.session(process)
    reports: list[list[str]] = []
    sending = threading.Thread(target=lambda: reports.append(outcomes(send(session, [stage.world.record()]))))
    sending.start()
    assert on_the_wire.wait(5)
    asked = process.calls.count("ask")
    probed = session.probe(lambda: None)
    sending.join()
    assert (probed.session_open, probed.expected_nonce, process.calls.count("ask")) == (True, 0, asked)
    assert reports == [["APPLIED"]]


def test_a_probe_asks_nothing_while_a_send_waits_for_the_one_before_it(stage: Stage) -> None:
    process, waits = Process(), threading.Event()
    session = stage.session(process)
    asked = process.calls.count("ask")
    second = threading.Thread(target=lambda: session.send([stage.world.record()], waits.set, sequence=2))
    second.start()
    assert waits.wait(5)
    session.probe(lambda: None)
    session.close("the test is over")
    second.join()
    assert process.calls.count("ask") == asked


def test_two_reads_of_the_expected_nonce_must_agree(stage: Stage) -> None:
    """Something of an earlier connection is applied between the first read and the second: it is asked again."""
    process = Process()
    process.forged = [Response(200, b'{"expected_nonce": 500}', reusable=True)]
    opened = stage.open(process)
    assert isinstance(opened, Opened)
    assert (opened.event.expected_nonce, process.calls.count("ask")) == (501, 3)


def test_an_opening_watches_its_own_deadline(stage: Stage) -> None:
    """OldHost's count does not hold still, and each answer takes 20 s: the writer has given this opening up by then."""
    process = Process()

    def hook(call: str, when: str) -> None:
        if (call, when) == ("hear", "after"):
            process.clock_offset += 20
            stage.control(lambda controls: controls.foreign_write({}))

    process.hook = hook
    waiting = stage.open(process)
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == "unsteady"
    assert process.calls.count("ask") == 3


def test_a_connection_closed_while_idle_leaves_nothing_in_doubt(stage: Stage) -> None:
    change_id = stage.world.record()
    session = stage.session()
    stage.control(lambda controls: controls.close_connection({}))
    sent = send(session, [change_id])
    assert (outcomes(sent), sent.session_open) == (["WAITING"], False)
    opened = stage.open()
    assert isinstance(opened, Opened), "no settle time to wait for"
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]


def test_the_watch_lets_go_of_a_connection_that_oldhost_closed(stage: Stage) -> None:
    session = stage.session()
    assert session.watch()
    stage.control(lambda controls: controls.close_connection({}))
    stage.wait_for(lambda: not session.watch())


def test_the_watch_lets_go_when_another_session_took_over(stage: Stage) -> None:
    session = stage.session()
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == "in-use"
    assert not session.watch()
    assert isinstance(stage.open(), Opened)


def test_an_unreachable_host_is_waited_for(stage: Stage) -> None:
    stage.fault("refuse", next=2)
    assert isinstance(stage.open(), Opened), "it tries for a while"
    stage.close()
    stage.fault("refuse")
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == "connection"


def test_two_batches_wait_for_one_another_and_nothing_overlaps(stage: Stage) -> None:
    # Ten in line, where the writer has two: the last one waits for nine, however busy the machine is.
    stage.limits = replace(stage.limits, predecessor_seconds=30.0, request_timeout_seconds=1.5)
    stage.control(lambda controls: controls.latency({"latency_ms": 5}))
    ids = [stage.world.record(f"u{number}") for number in range(40)]
    session = stage.session()
    reports: dict[int, list[str]] = {}

    def run(sequence: int) -> None:
        batch = ids[(sequence - 1) * 4 : sequence * 4]
        reports[sequence] = outcomes(send(session, batch, sequence))

    threads = [threading.Thread(target=run, args=(sequence,)) for sequence in range(1, 11)]
    for thread in reversed(threads):
        thread.start()
    for thread in threads:
        thread.join()
    assert all(report == ["APPLIED"] * 4 for report in reports.values())
    assert stage.applied_ids() == ids, "sends reserve in the order of their sequence"
    stage.check_clean()


def test_a_send_whose_predecessor_never_comes_ends_the_session(stage: Stage) -> None:
    change_id = stage.world.record()
    sent = send(stage.session(), [change_id], sequence=2)
    assert (outcomes(sent), sent.session_open) == (["WAITING"], False)
    assert stage.journal() == []


def test_a_fresh_change_does_not_overtake_a_bound_one(stage: Stage) -> None:
    bound, fresh = stage.world.record("u1"), stage.world.record("u2")
    session = stage.session()
    stage.fault("drop_before", next=1)
    send(session, [bound])
    session = stage.session()
    sent = send(session, [fresh])
    assert (outcomes(sent), sent.session_open) == (["WAITING"], False)
    assert outcomes(send(stage.session(), [bound, fresh])) == ["APPLIED", "APPLIED"]
    assert stage.applied_ids() == [bound, fresh]
    stage.check_clean()


def test_draining_finishes_what_is_on_the_wire_and_records_it(stage: Stage) -> None:
    stage.control(lambda controls: controls.latency({"latency_ms": 100}))
    ids = [stage.world.record(f"u{number}") for number in range(3)]
    on_the_wire = threading.Event()

    def hook(call: str, when: str) -> None:
        if (call, when) == ("write", "after"):
            on_the_wire.set()

    session = stage.session(Process(hook))
    reports: list[list[str]] = []
    sending = threading.Thread(target=lambda: reports.append(outcomes(send(session, ids))))
    sending.start()
    assert on_the_wire.wait(5)
    assert session.drain("leaving", 5.0, lambda: None)
    sending.join()
    assert reports == [["APPLIED", "WAITING", "WAITING"]]
    opened = stage.open()
    assert isinstance(opened, Opened), "nothing is in doubt, and the connection is free"
    assert outcomes(send(opened.session, ids[1:])) == ["APPLIED", "APPLIED"]
    stage.check_clean()


def test_a_session_that_is_over_sends_nothing(stage: Stage) -> None:
    session = stage.session()
    session.close("over")
    sent = send(session, [stage.world.record()])
    assert (outcomes(sent), sent.session_open, sent.reason) == (["WAITING"], False, "over")
    assert stage.world.counts() == (500, 501)
