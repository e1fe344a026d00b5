"""Hosts and proxies that behave oddly: nothing is lost, and each has a reason of its own that people are told."""

from __future__ import annotations

import pytest

from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.policy.machine.events import OpeningHalted, OpeningPostponed
from tests.integration.session.stage import Process, Stage, outcomes, send

pytestmark = pytest.mark.mariadb

BEYOND = 2**63


def test_a_host_that_closes_after_every_second_answer_still_gets_one_operation_a_connection(stage: Stage) -> None:
    ids = [stage.world.record(f"u{number}") for number in range(4)]
    session = stage.session()
    stage.fault("close_after", on="any", every=2)
    for change_id in ids:
        while outcomes(send(session, [change_id])) != ["APPLIED"]:
            opened = stage.open()
            assert isinstance(opened, Opened), opened
            session = opened.session
    assert stage.applied_ids() == ids
    stage.check_clean()


def test_what_is_in_doubt_goes_again_to_a_host_that_closes_after_every_second_answer(stage: Stage) -> None:
    """Two readings and the operation are three answers: the first reading may come from another connection."""
    (change_id,) = [stage.world.record("u1")]
    session = stage.session()
    stage.fault("drop_before", next=1)
    assert outcomes(send(session, [change_id])) == ["BOUND"]
    stage.fault("close_after", on="any", every=2)
    while outcomes(send(stage.session(), [change_id])) != ["APPLIED"]:
        pass  # a slow machine asked once more, and the session's first answer was its last
    assert stage.applied_ids() == [change_id]
    stage.check_clean()


def test_a_connection_closed_between_whole_answers_needs_no_settle_time(stage: Stage) -> None:
    """The next operation was marked already and is taken back; nobody waits for what never left."""
    ids = [stage.world.record(f"u{number}") for number in range(3)]
    session = stage.session()
    stage.fault("close_after", next=1)
    assert outcomes(send(session, ids)) == ["APPLIED", "BOUND", "WAITING"]
    opened = stage.open()
    assert isinstance(opened, Opened), opened
    assert outcomes(send(opened.session, ids[1:])) == ["APPLIED", "APPLIED"]
    stage.check_clean()


def test_where_nothing_is_in_doubt_one_reading_is_enough(stage: Stage) -> None:
    stage.session().close("over")
    process = Process()
    assert isinstance(stage.open(process), Opened)
    assert process.calls.count("ask") == 1


@pytest.mark.parametrize("length", [True, False])
def test_a_host_without_keep_alive_is_refused_with_a_sentence_that_says_so(stage: Stage, length: bool) -> None:
    stage.fault("http10", on="any", length=length)
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == "keep-alive"
    assert "HTTP/1.0" in waiting.message


def test_two_alternating_expected_nonces_are_called_unsteady(stage: Stage) -> None:
    stage.session().close("over")
    stage.fault("say", on="ask", status=200, shift=5, every=2, skip=0)
    stage.fault("say", on="ask", status=200, shift=7, every=1, label="always")
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == "unsteady"


def test_a_host_that_stays_busy_while_it_is_asked_is_called_busy(stage: Stage) -> None:
    stage.fault("busy", on="ask", retry_after=0.01)
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == "busy"


def test_a_host_that_stays_busy_with_an_operation_is_called_busy(stage: Stage) -> None:
    session = stage.session()
    stage.fault("busy", on="sync", retry_after=0.01)
    sent = send(session, [stage.world.record()])
    assert (sent.refusal, outcomes(sent)) == ("busy", ["BOUND"])
    assert isinstance(stage.open(), Opened), "it was refused each time: nothing is in doubt"


@pytest.mark.parametrize(
    ("reply", "kind", "reason"), [("bytes", "unreadable", "unreadable"), ("not_json", "unlisted", "credentials")]
)
def test_answers_that_can_not_be_read_are_called_so(stage: Stage, reply: str, kind: str, reason: str) -> None:
    """A web page is perhaps one to sign in."""
    session = stage.session()
    stage.fault("garbage", on="any", reply=reply)
    assert send(session, [stage.world.record()]).refusal == kind
    stage.world.age(stage.limits.settle_seconds)
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == reason


def test_one_false_reading_of_the_expected_nonce_does_not_halt(stage: Stage) -> None:
    assert outcomes(send(stage.session(), [stage.world.record()])) == ["APPLIED"]
    stage.close()
    stage.fault("say", on="ask", shift=-1, next=2)
    opened = stage.open()
    assert isinstance(opened, Opened), opened
    assert outcomes(send(opened.session, [stage.world.record("u2")])) == ["APPLIED"]
    stage.check_clean()


def test_a_reading_that_stays_low_halts(stage: Stage) -> None:
    assert outcomes(send(stage.session(), [stage.world.record()])) == ["APPLIED"]
    stage.close()
    stage.fault("say", on="ask", shift=-1)
    halted = stage.open()
    assert isinstance(halted, OpeningHalted)
    assert "went back" in halted.message


@pytest.mark.parametrize("said", [BEYOND, -3, 10**30])
def test_an_expected_nonce_that_nobody_can_count_from_halts_with_a_sentence(stage: Stage, said: int) -> None:
    stage.fault("say", on="ask", fields={"expected_nonce": said})
    halted = stage.open()
    assert isinstance(halted, OpeningHalted)
    assert "out of range" in halted.message
    assert stage.world.halted() == halted.message


@pytest.mark.parametrize("said", [BEYOND, "many", -1])
def test_a_foreign_write_is_noticed_whatever_the_replays_answer_says(stage: Stage, said: object) -> None:
    """Ban and halt are kept together: without them the next opening would take our operation for applied."""
    change_id = stage.world.record()
    session = stage.session()
    stage.control(lambda controls: controls.foreign_write({}))
    stage.fault("say", on="sync", status=400, fields={"expected_nonce": said})
    sent = send(session, [change_id])
    assert (outcomes(sent), sent.never_taken) == (["BOUND"], change_id)
    assert "another client wrote" in sent.halted
    assert "another client wrote" in (stage.world.halted() or "")
    assert isinstance(stage.open(), OpeningHalted)
    assert stage.world.outcome(change_id) == (None, None)


def test_a_ban_that_claims_to_last_a_day_is_asked_about_when_a_ban_is_over(stage: Stage) -> None:
    stage.fault("say", on="any", status=403, fields={"retry_after": 86_400})
    stage.control(lambda controls: controls.ban({"seconds": 900}))
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert (waiting.reason, waiting.wait_ms) == ("ban", 86_400_500)
    processes = [Process(), Process()]
    for process, seconds in zip(processes, (899.0, 1.0), strict=True):
        stage.world.age(seconds)
        stage.open(process)
    assert [process.calls.count("ask") for process in processes] == [0, 1]
