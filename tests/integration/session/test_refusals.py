"""A send that OldHost has certainly not taken never counts as one: not even when its nonce is found used (I2)."""

from __future__ import annotations

import pytest

from oldhost_sync.drivers.http.response import Response
from oldhost_sync.oldhost.errors import ExchangeCut, LedgerUnavailable, NothingWritten
from oldhost_sync.policy.machine.events import OpeningHalted
from tests.integration.session.stage import Process, Stage, outcomes, send

pytestmark = pytest.mark.mariadb

BUSY = Response(503, b'{"error": "busy", "retry_after": 0.01}', reusable=True)
IN_USE = Response(503, b'{"error": "connection_in_use"}', reusable=False)
GAP = Response(400, b'{"error": "nonce_gap", "expected_nonce": 500}', reusable=True)
REFUSALS = {"busy": [BUSY] * 4, "connection in use": [IN_USE], "a gap": [GAP], "busy, then a gap": [BUSY, GAP]}


def then_somebody_else_writes(stage: Stage) -> None:
    stage.close()
    stage.control(lambda controls: controls.foreign_write({}))


def assert_found_to_be_foreign(stage: Stage, change_id: int) -> None:
    """Nonce 501 is used, and not by us."""
    stage.world.age(stage.limits.settle_seconds)
    halted = stage.open()
    assert isinstance(halted, OpeningHalted), halted
    assert "another client wrote" in halted.message
    assert stage.world.outcome(change_id) == (None, None)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_foreign_write_after_a_refusal_is_not_taken_for_our_operation(stage: Stage, refusal: str) -> None:
    change_id = stage.world.record()
    process = Process()
    session = stage.session(process)
    process.forged = list(REFUSALS[refusal])
    sent = send(session, [change_id])
    assert (outcomes(sent), sent.session_open, process.forged) == (["BOUND"], False, [])
    then_somebody_else_writes(stage)
    assert_found_to_be_foreign(stage, change_id)


def test_a_foreign_write_after_a_connection_broke_before_the_first_byte_is_not_taken_for_our_operation(
    stage: Stage,
) -> None:
    change_id = stage.world.record()

    def hook(call: str, when: str) -> None:
        if (call, when) == ("write", "before"):
            raise NothingWritten("gone")

    sent = send(stage.session(Process(hook)), [change_id])
    assert (outcomes(sent), sent.session_open) == (["BOUND"], False)
    then_somebody_else_writes(stage)
    assert_found_to_be_foreign(stage, change_id)


def test_a_refused_send_after_one_in_doubt_leaves_that_one_in_doubt(stage: Stage) -> None:
    """OldHost took the first send and its reply was lost; the second was refused. The operation is applied, once."""
    change_id = stage.world.record()
    process = Process()

    def hook(call: str, when: str) -> None:
        if (call, when) == ("write", "before"):
            raise ExchangeCut("cut, as far as we can see")

    send(stage.session(Process(hook)), [change_id])
    session = stage.session(process)
    process.forged = [BUSY] * 4
    assert outcomes(send(session, [change_id])) == ["BOUND"]
    then_somebody_else_writes(stage)
    assert outcomes(stage.opening().event.fates) == ["APPLIED"], "it may well have been ours"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_refusal_is_kept_when_the_database_is_away_for_a_moment(stage: Stage, moment: str) -> None:
    change_id = stage.world.record()
    process = Process()
    lost: list[str] = []

    def hook(call: str, when: str) -> None:
        if (call, when) == ("uncount_send", moment) and not lost:
            lost.append(call)
            raise LedgerUnavailable("CommitUncertain: a test")

    session = stage.session(process)
    process.hook, process.forged = hook, [BUSY] * 4
    assert outcomes(send(session, [change_id])) == ["BOUND"]
    assert lost
    then_somebody_else_writes(stage)
    assert_found_to_be_foreign(stage, change_id)


def test_what_was_marked_for_later_and_never_written_does_not_count_as_sent(stage: Stage) -> None:
    """The first of two is lost on its way, the second was marked meanwhile; somebody else uses both nonces."""
    first, second = stage.world.record("u1"), stage.world.record("u2")
    session = stage.session()
    stage.fault("drop_before", next=1)
    assert outcomes(send(session, [first, second])) == ["BOUND", "BOUND"]
    then_somebody_else_writes(stage)
    then_somebody_else_writes(stage)
    assert_found_to_be_foreign(stage, second)


def test_a_halt_that_the_session_could_not_keep_is_kept_by_the_writer_with_what_was_not_taken(stage: Stage) -> None:
    """OldHost called a first send a replay while the database was away: the ledger still counts the send."""
    change_id = stage.world.record()
    session = stage.session(process := Process())
    stage.control(lambda controls: controls.foreign_write({}))

    def hook(call: str, when: str) -> None:
        if (call, when) == ("ban", "before"):
            raise LedgerUnavailable("DatabaseUnavailable: a test")

    process.hook = hook
    sent = send(session, [change_id])
    assert sent.halted
    assert sent.never_taken == change_id
    assert stage.world.decide("halt", change_id=change_id, decision_id="run/1") == ""
    assert stage.world.decide("resolve", mode="resend") == ""
    stage.control(lambda controls: controls.unban({}))
    assert_found_to_be_foreign(stage, change_id)
