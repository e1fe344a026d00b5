"""Replies that never come, or that are slow: how long the session waits, and what the next one makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oldhost_sync.oldhost.answer_times import KNOWN_AFTER, ReplyTimeout
from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.oldhost.session import Session
from tests.integration.session.stage import Hook, Process, Stage, outcomes, send

MOST = 30.0
OVERDUE = "for longer than its answers take"


@pytest.fixture
def timed_stage(stage: Stage) -> Stage:
    """A request timeout so long that nobody sits through it."""
    stage.limits = replace(stage.limits, request_timeout_seconds=MOST, settle_seconds=2 * MOST)
    return stage


def used_to(stage: Stage, process: Process) -> Session:
    """A session that has seen enough answers."""
    session = stage.session(process)
    ids = [stage.world.record(f"u{number}") for number in range(KNOWN_AFTER)]
    assert outcomes(send(session, ids)) == ["APPLIED"] * KNOWN_AFTER
    return session


def test_a_session_that_knows_little_waits_the_request_timeout(timed_stage: Stage) -> None:
    process = Process(reply_timeout=ReplyTimeout())
    session = used_to(timed_stage, process)
    send(session, [timed_stage.world.record()])
    *little, enough = process.reply_seconds
    assert little == [MOST] * KNOWN_AFTER
    assert enough < MOST


def test_a_reply_that_never_comes_is_given_up_when_it_is_overdue_and_found_applied(timed_stage: Stage) -> None:
    stage, process = timed_stage, Process(reply_timeout=ReplyTimeout())
    session = used_to(stage, process)
    lost, following = stage.world.record("lost"), stage.world.record("following")
    stage.fault("swallow", next=1)
    sent = send(session, [lost, following])
    assert outcomes(sent) == ["BOUND", "BOUND"]
    assert OVERDUE in sent.reason
    opened = stage.open(process)
    assert isinstance(opened, Opened), "nothing is waited for: OldHost says that it has it"
    assert [(fate.change_id, fate.outcome) for fate in opened.event.fates] == [(lost, "APPLIED")]
    assert outcomes(send(opened.session, [following])) == ["APPLIED"]
    assert stage.applied_ids()[-2:] == [lost, following]
    stage.check_clean()


def test_after_a_reply_that_never_came_the_next_one_is_waited_for_as_if_nothing_were_known(
    timed_stage: Stage,
) -> None:
    stage, process = timed_stage, Process(reply_timeout=ReplyTimeout())
    session = used_to(stage, process)
    stage.fault("swallow", next=1)
    send(session, [stage.world.record()])
    send(stage.session(process), [stage.world.record(), stage.world.record("other")])
    first, second = process.reply_seconds[-2:]
    assert first == MOST
    assert second < MOST


def test_an_operation_that_was_given_up_and_is_applied_late_is_applied_once_and_teaches_the_timeout(
    timed_stage: Stage,
) -> None:
    stage, process = timed_stage, Process(reply_timeout=ReplyTimeout())
    stage.limits = replace(stage.limits, early_look_pauses=(0.01,))
    session = used_to(stage, process)
    late = stage.world.record("late")
    stage.fault("hang", next=1, seconds=3600, applied=True)
    assert OVERDUE in send(session, [late]).reason
    gave_up_after = process.reply_seconds[-1]
    process.hook = _ending_the_hang_at(stage, connection=2)
    opened = stage.open(process)
    assert isinstance(opened, Opened)
    assert stage.stats()["refused_connections"] == 1, "OldHost had the operation still"
    assert outcomes(opened.event.fates) == ["APPLIED"]
    send(opened.session, [stage.world.record("u1"), stage.world.record("u2")])
    assert process.reply_seconds[-1] > gave_up_after
    assert stage.applied_ids().count(late) == 1
    stage.check_clean()


def test_an_operation_that_was_given_up_and_was_never_applied_is_sent_again_after_the_settle_time(
    timed_stage: Stage,
) -> None:
    stage, process = timed_stage, Process(reply_timeout=ReplyTimeout())
    session = used_to(stage, process)
    unheard = stage.world.record("unheard")
    stage.fault("hang", next=1, seconds=3600, applied=False)
    assert OVERDUE in send(session, [unheard]).reason
    stage.control(lambda controls: controls.close_connection({}))
    opened = stage.opening(process)
    assert [ref[0] for ref in opened.event.bound] == [unheard]
    assert outcomes(send(opened.session, [unheard])) == ["APPLIED"]
    stage.check_clean()


def test_an_answer_that_came_while_the_session_was_held_up_is_no_silence(timed_stage: Stage) -> None:
    """The process is stopped after the write for longer than it waits; the answer is there when it goes on."""
    stage, process = timed_stage, Process(reply_timeout=ReplyTimeout())
    session = used_to(stage, process)
    applied = len(stage.applied_ids())

    def hold_up(call: str, when: str) -> None:
        if (call, when) == ("read", "before"):
            stage.wait_for(lambda: len(stage.applied_ids()) > applied)
            process.clock_offset += MOST / 2

    process.hook = hold_up
    sent = send(session, [stage.world.record("held up")])
    assert (outcomes(sent), sent.session_open) == (["APPLIED"], True)


def _ending_the_hang_at(stage: Stage, connection: int) -> Hook:
    """OldHost is done with what it hangs at when it is connected to for that time."""
    connections = iter(range(1, 1000))

    def hook(call: str, when: str) -> None:
        if (call, when) == ("connect", "before") and next(connections) == connection:
            stage.control(lambda controls: controls.close_connection({}))

    return hook
