"""A complete answer that the protocol does not have: whatever it is, it never makes a change APPLIED (I14)."""

from __future__ import annotations

import contextlib

import pytest

from oldhost_sync.oldhost.errors import LedgerUnavailable
from oldhost_sync.oldhost.ledger import Count
from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.policy.machine.events import OpeningHalted, OpeningPostponed
from oldhost_sync.store.read.halt import read_halt
from tests.conformance.maria_world import HOST
from tests.integration.session.stage import Hook, Process, ProcessDied, Stage, no_hook, outcomes, send

pytestmark = pytest.mark.mariadb

FOREIGN = '{"code": "E-17", "message": "guest \\u0007 unknown"}'
REJECTIONS = [(422, FOREIGN), (409, "<h1>Conflict</h1>"), (400, ""), (403, "no"), (404, "{}")]
UNSURE = [(500, FOREIGN), (502, "<h1>Bad gateway</h1>"), (200, "<h1>It works</h1>"), (200, "{}"), (202, "later"),
          (200, '{"nonce": 777, "expected_nonce": 778}'), (302, "")]  # fmt: skip
STATUS = "SELECT outcome, unproven, error FROM outbox_events WHERE id = %s"


def answered(stage: Stage, status: int, body: str, nonce: str) -> int:
    """The change whose operation got that answer; the next session has looked since."""
    change_id = stage.world.record("u1", "unit_status_changed", {"status": "Clean"})
    stage.fault("answer", next=1, status=status, body=body, nonce=nonce)
    sent = send(stage.session(), [change_id])
    assert (outcomes(sent), sent.session_open) == (["BOUND"], False)
    return change_id


@pytest.mark.parametrize(("status", "body"), REJECTIONS)
def test_a_4xx_of_any_form_that_used_the_nonce_is_a_rejection_with_its_words(
    stage: Stage, status: int, body: str
) -> None:
    change_id = answered(stage, status, body, "used")
    opened = stage.open()
    assert isinstance(opened, Opened), "that the nonce is used needs no settle time"
    assert [(fate.outcome, fate.unproven) for fate in opened.event.fates] == [("DEAD", False)]
    ((outcome, unproven, error),) = stage.world.read(STATUS, change_id)
    assert (outcome, unproven, stage.world.sync_status("u1")) == ("DEAD", 0, "SYNC_FAILED")
    assert error.startswith(f"status {status}")
    assert "\x07" not in error
    row = stage.world.row(501)
    assert row is not None
    assert row[1] == "FAILED"
    assert outcomes(send(opened.session, [stage.world.record("u2")])) == ["APPLIED"]
    stage.check_clean()


@pytest.mark.parametrize("nonce", ["used", "applied"])
@pytest.mark.parametrize(("status", "body"), UNSURE)
def test_any_other_answer_that_used_the_nonce_leaves_it_unsure(
    stage: Stage, status: int, body: str, nonce: str
) -> None:
    change_id = answered(stage, status, body, nonce)
    fates = stage.opening().event.fates
    assert [(fate.outcome, fate.unproven) for fate in fates] == [("DEAD", True)]
    assert body[:4] not in str(fates[0].error) or not body, "OldHost's words do not get into Temporal's history (I9)"
    ((outcome, unproven, error),) = stage.world.read(STATUS, change_id)
    assert (outcome, unproven, stage.world.sync_status("u1")) == ("DEAD", 1, "SYNC_FAILED")
    assert error.startswith(f"unsure: status {status}")
    row = stage.world.row(501)
    assert row is not None
    assert row[1] == "UNSURE"
    stage.check_clean()


@pytest.mark.parametrize(("status", "body"), [*REJECTIONS, *UNSURE])
def test_an_answer_that_did_not_use_the_nonce_is_followed_by_the_same_bytes(
    stage: Stage, status: int, body: str
) -> None:
    change_id = answered(stage, status, body, "unused")
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == "settle"
    session = stage.session()
    stage.rest()
    assert outcomes(send(session, [change_id])) == ["APPLIED"]
    assert stage.world.read(STATUS, change_id) == [("APPLIED", 0, None)]
    stage.check_clean()


def test_a_lost_answer_whose_nonce_was_used_is_applied_and_unconfirmed(stage: Stage) -> None:
    change_id = stage.world.record("u1")
    session = stage.session()
    stage.fault("drop_after", next=1)
    send(session, [change_id])
    assert [(fate.outcome, fate.unproven) for fate in stage.opening().event.fates] == [("APPLIED", True)]
    assert stage.world.read(STATUS, change_id) == [("APPLIED", 1, None)]


def test_an_answer_that_says_applied_is_confirmed(stage: Stage) -> None:
    change_id = stage.world.record("u1")
    send(stage.session(), [change_id])
    assert stage.world.read(STATUS, change_id) == [("APPLIED", 0, None)]


def test_an_unsure_lww_change_makes_no_equal_one_a_no_op(stage: Stage) -> None:
    """OldHost's state of the key is unknown: the newest is sent."""
    answered(stage, 500, FOREIGN, "used")
    newest = stage.world.record("u1", "unit_status_changed", {"status": "Clean"})
    assert outcomes(send(stage.session(), [newest])) == ["APPLIED"]


def test_an_unsure_change_holds_the_later_txn_changes_of_its_entity(stage: Stage) -> None:
    answered(stage, 500, FOREIGN, "used")
    later = stage.world.record("u1", "booking_created", {"guest": 1})
    assert outcomes(send(stage.session(), [later])) == ["HELD"]


def test_an_unsure_change_can_be_confirmed_and_stays_unconfirmed_by_oldhost(stage: Stage) -> None:
    change_id = answered(stage, 500, FOREIGN, "applied")
    later = stage.world.record("u1", "booking_created", {"guest": 1})
    session = stage.session()
    assert stage.world.decide("confirm", change_id=change_id) == ""
    assert stage.world.read(STATUS, change_id) == [("APPLIED", 1, None)]
    assert outcomes(send(session, [later])) == ["APPLIED"]
    assert stage.world.sync_status("u1") == "SYNCED"


def test_an_unsure_change_can_be_sent_again_or_given_up(stage: Stage) -> None:
    first = answered(stage, 500, FOREIGN, "used")
    stage.session().close("the test goes on")
    assert stage.world.decide("retry", change_id=first) == ""
    assert stage.world.read(STATUS, first) == [(None, 0, None)]
    second = answered(stage, 500, FOREIGN, "used")
    stage.session()
    assert stage.world.decide("discard", change_id=second) == ""
    assert stage.world.outcome(second)[0] == "DISCARDED"


def test_a_rejected_change_can_not_be_confirmed(stage: Stage) -> None:
    change_id = answered(stage, 422, FOREIGN, "used")
    stage.session()
    assert "OldHost rejected" in stage.world.decide("confirm", change_id=change_id)
    assert stage.world.outcome(change_id)[0] == "DEAD"


def test_an_answer_is_kept_though_the_database_is_away_for_a_moment(stage: Stage) -> None:
    change_id = stage.world.record("u1")
    failures = [LedgerUnavailable("away")] * 2

    def hook(call: str, when: str) -> None:
        if (call, when) == ("note_answer", "before") and failures:
            raise failures.pop()

    session = stage.session(Process(hook))
    stage.fault("answer", next=1, status=500, nonce="used")
    send(session, [change_id])
    assert [fate.outcome for fate in stage.opening().event.fates] == ["DEAD"]


@pytest.mark.parametrize("shift", [3, -1])
def test_what_oldhost_called_applied_is_applied_before_the_rest_of_the_answer_halts(stage: Stage, shift: int) -> None:
    first, second = stage.world.record("u1"), stage.world.record("u2")
    session = stage.session()
    stage.fault("say", next=1, status=200, shift=shift)
    sent = send(session, [first, second])
    assert outcomes(sent) == ["APPLIED", "BOUND"]
    assert "says that nonce 501 is applied" in sent.halted
    assert stage.world.read(STATUS, first) == [("APPLIED", 0, None)]
    assert "says that nonce 501 is applied" in str(stage.world.halted())


@pytest.mark.parametrize("mode", ["adopt", "resend"])
def test_what_oldhost_called_applied_is_applied_once_whatever_is_decided_later(stage: Stage, mode: str) -> None:
    first, second = stage.world.record("u1"), stage.world.record("u2")
    session = stage.session()
    stage.fault("say", next=1, status=200, shift=3)
    send(session, [first, second])
    assert isinstance(stage.open(), OpeningHalted)
    assert not stage.resolve(mode).refused
    assert outcomes(send(stage.session(), [second])) == ["APPLIED"]
    assert stage.applied_ids() == [first, second]
    stage.check_clean()


def fallen(stage: Stage, hook: Hook = no_hook) -> list[int]:
    """Three that OldHost called applied, and one more. With the third answer, its count begins anew."""
    changes = [stage.world.record(f"u{number}") for number in range(4)]
    session = stage.session(Process(hook))
    send(session, changes[:2])
    stage.fault("say", next=1, status=200, fields={"expected_nonce": 501})
    with contextlib.suppress(ProcessDied):
        send(session, changes[2:])
    stage.control(lambda controls: controls.restore({"expected_nonce": 501}))
    return changes


@pytest.mark.parametrize("mode", ["adopt", "resend"])
def test_where_the_count_falls_in_the_answer_what_it_called_applied_is_never_sent_again(
    stage: Stage, mode: str
) -> None:
    changes = fallen(stage)
    halted = stage.open()
    assert isinstance(halted, OpeningHalted)
    assert "none of that is sent again" in halted.message
    with stage.world.engine.connect() as connection:
        halt = read_halt(connection, HOST)
    assert halt is not None
    assert (halt.same, halt.resend.sent_again, halt.resend.given_up, halt.at_stake) == (True, 0, 0, 1)
    assert not stage.resolve(mode).refused
    opened = stage.opening()
    assert opened.event.bound == []
    assert outcomes(send(opened.session, changes)) == ["APPLIED"] * 4
    assert stage.applied_ids() == changes
    stage.check_clean()


@pytest.mark.parametrize("mode", ["adopt", "resend"])
def test_and_that_is_known_though_the_process_dies_before_it_halts(stage: Stage, mode: str) -> None:
    def hook(call: str, when: str) -> None:
        if (call, when) == ("halt", "before"):
            raise ProcessDied

    changes = fallen(stage, hook)
    stage.close()
    stage.world.age(stage.limits.settle_seconds)
    assert isinstance(stage.open(), OpeningHalted)
    assert not stage.resolve(mode).refused
    assert outcomes(send(stage.session(), changes)) == ["APPLIED"] * 4
    assert stage.applied_ids() == changes


def test_a_decision_that_waits_for_the_count_does_not_forget_it(stage: Stage) -> None:
    changes = fallen(stage)
    assert stage.world.decide("resolve", mode="resend", count=Count(None, "no connection")) == ""
    assert isinstance(stage.open(), OpeningHalted), "the operator was not shown the count"
    assert not stage.resolve("resend").refused
    assert outcomes(send(stage.session(), changes)) == ["APPLIED"] * 4
    assert stage.applied_ids() == changes


def test_a_backup_that_is_restored_after_a_count_fell_and_was_resolved_gets_what_it_lost(stage: Stage) -> None:
    changes = fallen(stage)
    stage.open()
    stage.resolve("adopt")
    send(stage.session(), changes[3:])
    stage.close()
    stage.control(lambda controls: controls.restore({"expected_nonce": 501}))
    assert isinstance(stage.open(), OpeningHalted)
    assert not stage.resolve("resend").refused
    assert outcomes(send(stage.session(), changes)) == ["APPLIED"] * 4
    assert stage.applied_ids() == [*changes, changes[3]]


def test_a_count_that_only_the_answer_got_wrong_is_forgotten(stage: Stage) -> None:
    first, second = stage.world.record("u1"), stage.world.record("u2")
    session = stage.session()
    stage.fault("say", next=1, status=200, fields={"expected_nonce": 1})
    send(session, [first, second])
    stage.open()
    assert not stage.resolve("resend").refused
    assert outcomes(send(stage.session(), [first, second])) == ["APPLIED", "APPLIED"]
    assert stage.world.read("SELECT count_fell_at FROM nonce_ledger") == [(None,)]


@pytest.mark.parametrize("said", ['{"code": "E-17", "expected_nonce": 502}', '{"error": "nonce_replay"}'])
def test_a_nonce_that_oldhost_called_used_is_not_sent_again_on_an_older_reading(stage: Stage, said: str) -> None:
    """A cache on the way gives the reading from before."""
    change_id = stage.world.record("u1")
    process = Process()
    session = stage.session(process)
    stage.fault("drop_before", next=1)
    send(session, [change_id])
    session = stage.session(process)
    stage.fault("answer", next=1, status=400, body=said, nonce="used")
    send(session, [change_id])
    stage.world.execute("UPDATE nonce_ledger SET ban_is_over = 1, banned_until = NULL")
    stage.fault("say", on="ask", status=200, shift=-1)
    written = len(process.requests)
    waiting = stage.open(process)
    assert isinstance(waiting, OpeningPostponed), waiting
    if waiting.reason == "settle":
        stage.world.execute("UPDATE nonce_requests SET sent_at = sent_at - INTERVAL 10 SECOND")
        waiting = stage.open(process)
    assert isinstance(waiting, OpeningPostponed), waiting
    assert (waiting.reason, "older answer" in waiting.message) == ("unsteady", True)
    assert len(process.requests) == written
    stage.control(lambda controls: controls.switch_off("say"))
    assert isinstance(stage.open(process), Opened)
    stage.check_clean()


def test_a_nonce_that_oldhost_called_used_long_ago_halts_on_a_smaller_reading(stage: Stage) -> None:
    change_id = stage.world.record("u1")
    session = stage.session()
    stage.fault("answer", next=1, status=400, body='{"expected_nonce": 502}', nonce="used")
    send(session, [change_id])
    stage.fault("say", on="ask", status=200, shift=-1)
    stage.first_contact.forget()
    stage.world.execute("UPDATE nonce_requests SET sent_at = sent_at - INTERVAL 100 SECOND")
    halted = stage.open()
    assert isinstance(halted, OpeningHalted), halted
    assert "said before that nonce 501 is used" in halted.message
    assert len(stage.journal()) == 1


def test_a_smaller_reading_than_the_one_before_is_an_older_answer(stage: Stage) -> None:
    change_id = stage.world.record("u1")
    process = Process()
    session = stage.session(process)
    stage.fault("drop_after", next=1)
    send(session, [change_id])
    stage.fault("say", on="ask", status=200, shift=-1, skip=1)
    stage.fault("close_after", on="ask", next=1)  # the first reading comes over a connection that then ends
    stage.world.execute("UPDATE nonce_requests SET sent_at = sent_at - INTERVAL 100 SECOND")
    assert isinstance(stage.open(process), OpeningPostponed)
    waiting = stage.open(process)
    assert isinstance(waiting, OpeningPostponed), waiting
    assert (waiting.reason, "older answer" in waiting.message) == ("unsteady", True)
    assert len(process.requests) == 1


def test_an_operation_that_was_marked_and_never_written_is_not_called_refused(stage: Stage) -> None:
    first, second = stage.world.record("u1"), stage.world.record("u2")
    session = stage.session()
    stage.fault("drop_after", next=1)
    send(session, [first, second])
    stage.close()
    stage.control(lambda controls: controls.foreign_write({}))
    stage.world.age(stage.limits.settle_seconds)
    halted = stage.open()
    assert isinstance(halted, OpeningHalted), halted
    assert "our operation 502 was never written" in halted.message
