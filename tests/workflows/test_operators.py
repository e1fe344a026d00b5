"""Operators' updates and queries: what they do, and how they are refused when they make no sense."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateStage
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from oldhost_sync.policy.changes import Outcome
from oldhost_sync.policy.tuning import WriterPolicy
from tests.workflows.books import Reply
from tests.workflows.conftest import EMERGENCY, LWW, TXN, Stage, Writer
from workflows import clock, messages

pytestmark = pytest.mark.temporal


async def refusal(writer: Writer, update: str, argument: Any) -> str:
    """Why the writer refuses an update."""
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await writer.handle.execute_update(update, argument)
    assert isinstance(caught.value.cause, ApplicationError)
    return caught.value.cause.message


async def halted_by_a_restore(writer: Writer) -> list[int]:
    """Three changes were applied, and OldHost went back to before the last two; returns the changes."""
    changes = [await writer.take(TXN, unit) for unit in "abc"]
    await writer.until_quiet()
    writer.world.oldhost.restore(2)
    await writer.skip(310)
    await writer.until(lambda: writer.world.told("halted"))
    return changes


def request(**fields: Any) -> messages.OperatorAct:
    return messages.OperatorAct(operator="ana", reason="test", **fields)


async def test_a_paused_writer_takes_changes_and_sends_none(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        await writer.operate("pause")
        await writer.take(TXN, "a")
        await writer.skip(3600)
        assert writer.world.applied_ids == []
        assert (await writer.status())["paused"] == {"operator": "ana", "reason": "test", "remaining_ms": None}
        assert writer.world.closed_sessions == 1
        await writer.operate("resume")
        await writer.until_quiet()
        assert writer.world.applied_ids == [1]
        assert [decision.action for decision in writer.world.decisions] == ["pause", "resume"]


async def test_a_pause_with_an_end_is_over_then_by_an_act_of_the_writers_own(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        assert (await writer.operate("pause", for_seconds=2400)).startswith("paused until ")
        await writer.take(TXN, "a")
        await writer.skip(2000)
        assert 0 < (await writer.status())["paused"]["remaining_ms"] < 500_000
        assert writer.world.applied_ids == []
        await writer.skip(500)
        await writer.until_quiet()
        assert writer.world.applied_ids == [1]
        acts = [(decision.action, decision.operator) for decision in writer.world.decisions]
        assert acts == [("pause", "ana"), ("end-pause", "writer")]


async def test_a_rebuilt_writer_ends_the_pause_at_the_same_time(stage: Stage) -> None:
    async with stage.writer(books_closed=True) as writer:
        end = await writer.env.get_current_time() + timedelta(seconds=2400)
        writer.world.books.paused = ["ana", "test", round(end.timestamp() * 1000)]
        await writer.take(TXN, "a")
        writer.world.books_closed = False
        await writer.skip(2000)
        assert writer.world.applied_ids == []
        await writer.skip(500)
        await writer.until_quiet()
        assert writer.world.applied_ids == [1]
        assert [decision.action for decision in writer.world.decisions] == ["end-pause"]


@pytest.mark.parametrize(("update", "seconds"), [("pause", -1), ("pause", 31 * 86_400 + 1), ("resume", 60)])
async def test_an_end_that_makes_no_sense_is_refused(stage: Stage, update: str, seconds: int) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        assert "for_seconds" in await refusal(writer, update, request(for_seconds=seconds))


async def test_an_end_that_a_sender_sets_by_itself_is_not_taken(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        await writer.operate("pause", until_ms=1)
        assert (await writer.status())["paused"]["remaining_ms"] is None


async def test_an_emergency_that_waits_when_the_writer_is_paused_is_told_to_people(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        await writer.operate("pause")
        emergency = await writer.take(EMERGENCY, "a")
        await writer.until(lambda: writer.world.told("emergency-blocked"))
        assert writer.world.told("emergency-blocked")[0].change_id == emergency


async def test_a_flush_sends_what_is_debounced(stage: Stage) -> None:
    async with stage.writer() as writer:
        one, other = await writer.take(LWW, "a"), await writer.take(LWW, "b")
        assert await writer.operate("flush", entity_type="unit", entity_id="b") == 1
        await writer.until(lambda: writer.world.applied_ids == [other])
        assert await writer.operate("flush") == 1
        await writer.until_quiet()
        assert writer.world.applied_ids == [other, one]


async def test_a_rejection_holds_the_txn_changes_of_its_entity_only(stage: Stage) -> None:
    async with stage.writer(replies={1: [Reply.REJECTED]}) as writer:
        await writer.take(TXN, "a")
        await writer.until_rejected()
        _, other, emergency = (
            await writer.take(TXN, "a"),
            await writer.take(TXN, "b"),
            await writer.take(EMERGENCY, "a"),
        )
        await writer.until(lambda: len(writer.world.applied_ids) == 2)
        assert sorted(writer.world.applied_ids) == [other, emergency]
        status = await writer.status()
        assert (status["held"], status["dead_letters"]) == (1, 1)
        found = await writer.handle.query("find", args=["unit", "a"])
        assert found["dead_letters"] == [1]
        assert (found["changes"], found["held"]) == ([], 1)


async def test_a_retry_sends_the_dead_letter_before_those_behind_it(stage: Stage) -> None:
    async with stage.writer(replies={1: [Reply.REJECTED]}) as writer:
        dead = await writer.take(TXN, "a")
        await writer.until_rejected()
        held = await writer.take(TXN, "a")
        await writer.operate("retry", change_id=dead)
        await writer.until(lambda: len(writer.world.applied_ids) == 2)
        assert writer.world.applied_ids == [dead, held]


async def test_a_discard_lets_those_behind_it_go(stage: Stage) -> None:
    async with stage.writer(replies={1: [Reply.REJECTED]}) as writer:
        dead = await writer.take(TXN, "a")
        await writer.until_rejected()
        held = await writer.take(TXN, "a")
        await writer.operate("discard", change_id=dead)
        await writer.until(lambda: writer.world.applied_ids == [held])
        assert writer.world.outcome_of(dead) is Outcome.DISCARDED


@pytest.mark.parametrize(("action", "applied"), [("discard", [2]), ("retry", [1, 2])])
async def test_a_decision_that_the_writer_missed_is_followed_at_the_next_sweep(
    stage: Stage, action: str, applied: list[int]
) -> None:
    async with stage.writer(replies={1: [Reply.REJECTED]}) as writer:
        dead = await writer.take(TXN, "a")
        await writer.until_rejected()
        await writer.take(TXN, "a")
        writer.world.books.decide(messages.OperatorAct("oldhost", action, "ana", "told to", dead))
        await writer.skip(400)
        await writer.until(lambda: writer.world.applied_ids == applied)


async def test_no_hold_ends_at_a_sweep_while_an_act_is_under_way(stage: Stage) -> None:
    """It may be recorded, and not be told yet."""
    async with stage.writer(replies={1: [Reply.REJECTED]}) as writer:
        dead = await writer.take(TXN, "a")
        await writer.until_rejected()
        held = await writer.take(TXN, "a")
        writer.world.books.decide(messages.OperatorAct("oldhost", "discard", "ana", "told to", dead))
        writer.world.decisions_closed = True
        await writer.handle.start_update("flush", request(), wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        await writer.skip(700)
        assert writer.world.applied_ids == []
        writer.world.decisions_closed = False
        await writer.skip(700)
        await writer.until(lambda: writer.world.applied_ids == [held])


@pytest.mark.slow
async def test_a_halt_for_a_foreign_write_is_resolved_by_command(stage: Stage) -> None:
    async with stage.writer(replies={1: [Reply.LOST_BEFORE]}) as writer:
        writer.world.oldhost.foreign_write(0)
        writer.world.oldhost.foreign_write(0)
        change = await writer.take(TXN, "a")
        await writer.skip(3600)
        await writer.until(lambda: writer.world.told("halted"))
        assert writer.world.applied_ids == []
        await writer.operate("resolve", mode="adopt")
        await writer.until_quiet()
        assert writer.world.applied_ids == [change]
        assert writer.world.oldhost.journal[-1].nonce == 3


async def test_a_long_resolve_is_told_as_such_to_who_asked_and_to_whoever_acts_meanwhile(stage: Stage) -> None:
    async with stage.writer() as writer:
        changes = await halted_by_a_restore(writer)
        writer.world.decisions_closed = True  # it does not end
        assert "which may take minutes" in await refusal(writer, "resolve", request(mode="resend"))
        assert "a resolve is being carried out" in await refusal(writer, "pause", request())
        writer.world.decisions_closed = False
        await writer.skip(60)
        await writer.until(lambda: writer.world.applied_ids == changes)


async def test_a_count_that_changed_is_told_by_the_halt_and_not_decided_about(stage: Stage) -> None:
    async with stage.writer() as writer:
        changes = await halted_by_a_restore(writer)
        writer.world.books.other_count = "OldHost expects nonce 2 now; it was 9 when the halt was shown"
        assert "nothing was decided" in await refusal(writer, "resolve", request(mode="resend"))
        await writer.until(lambda: "it was 9" in writer.world.told("halted")[-1].message)
        assert "it was 9" in (await writer.status())["breaker"]["reason"]
        await writer.operate("resolve", mode="resend")
        await writer.until(lambda: writer.world.applied_ids == changes)


async def test_a_halt_that_comes_to_the_books_after_a_resolve_stops_nobody(stage: Stage) -> None:
    async with stage.writer() as writer:
        writer.world.books.halts_are_late = True
        await writer.until_state("SENDING")
        writer.world.answers_halted = "found by a session of before"
        change = await writer.take(TXN, "a")
        await writer.until_quiet()
        assert writer.world.applied_ids == [change]


async def test_what_is_resolved_is_in_doubt_no_longer_before_any_session_is_opened(stage: Stage) -> None:
    async with stage.writer(replies={2: [Reply.LOST_BEFORE]}) as writer:
        await writer.take(TXN, "a")
        await writer.until_quiet()
        writer.world.oldhost.foreign_write(0)
        writer.world.oldhost.foreign_write(0)
        await writer.take(TXN, "b")
        await writer.skip(3600)
        await writer.until(lambda: writer.world.told("halted"))
        await writer.until_status(lambda status: status["in_doubt"] == 1)
        await writer.operate("pause")
        await writer.operate("resolve", mode="adopt")
        status = await writer.status()
        assert (status["in_doubt"], status["in_flight"]) == (0, 0)


async def test_a_host_that_went_back_is_sent_what_it_lost_in_order(stage: Stage) -> None:
    async with stage.writer() as writer:
        changes = await halted_by_a_restore(writer)
        await writer.operate("resolve", mode="resend")
        await writer.until(lambda: len(writer.world.applied_ids) == 3)
        assert writer.world.applied_ids == changes
        assert [line.nonce for line in writer.world.oldhost.journal] == [1, 2, 3]


async def test_requests_that_make_no_sense_are_refused_and_say_why(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        anonymous = messages.OperatorAct()
        for update in ("pause", "resume", "flush", "retry", "discard", "confirm", "resolve"):
            assert "say who you are" in await refusal(writer, update, anonymous)
        assert await refusal(writer, "resume", request()) == "the writer is not paused"
        assert "not halted" in await refusal(writer, "resolve", request(mode="adopt"))
        assert "mode must be 'resend'" in await refusal(writer, "resolve", request(mode="guess"))
        assert "say which dead letter" in await refusal(writer, "retry", request())
        assert "change 7 is not a dead letter" in await refusal(writer, "retry", request(change_id=7))
        assert "change 7 is not a dead letter" in await refusal(writer, "discard", request(change_id=7))
        assert "give both" in await refusal(writer, "flush", request(entity_type="unit"))
        await writer.operate("pause")
        assert await refusal(writer, "pause", request()) == "already paused by ana: test"


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [
        ("operator", r'"a\ud800"', "half a character"),
        ("operator", r'"a\u0000b"', "a control character"),
        ("reason", r'"\udfff"', "half a character"),
        ("reason", '"' + 2000 * "x" + '"', "longer than"),
    ],
)
async def test_what_could_not_be_recorded_is_refused_before_it_is_tried(
    stage: Stage, field: str, text: str, why: str
) -> None:
    """Else recording would be repeated for ever, and no new run could begin."""
    fields = {"operator": '"ana"', "reason": '"a look"', field: text}
    data = "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"
    argument = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data.encode()))
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        assert why in await refusal(writer, "pause", argument)
        assert writer.world.decisions == []


async def test_arguments_of_another_shape_are_refused_and_harm_nothing(stage: Stage) -> None:
    async with stage.writer() as writer:
        for argument in (
            "pause!",
            7,
            ["ana"],
            None,
            {"operator": 5},
            {"operator": "ana", "reason": "r", "change_id": "x"},
        ):
            with pytest.raises(WorkflowUpdateFailedError):
                await writer.handle.execute_update("retry", argument)
        await writer.take(TXN, "a")
        await writer.until_quiet()


async def test_the_status_counts_and_names_everything(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.take(TXN, "a")
        await writer.take(LWW, "b")
        await writer.until(lambda: writer.world.applied_ids == [1])
        status = await writer.until_status(lambda status: not status["in_flight"])
        assert status["state"] == "SENDING"
        assert status["breaker"]["state"] == "CLOSED"
        assert (status["session"]["phase"], status["session"]["epoch"], status["session"]["opened_at_nonce"]) == (
            "open",
            1,
            1,
        )
        assert (status["waiting"], status["debounced"]) == (1, 1)
        assert status["counters"]["received"] == 2
        assert status["forecast"]["drain_ms"] >= 400


async def test_while_nothing_happens_the_status_goes_by_the_present(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workflow's clock stands still: an emergency that waits in a ban would never grow older."""
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        await writer.operate("pause")
        await writer.take(EMERGENCY, "a")
        later_ns = (await writer.world.now_ms() + 60_000) * 1_000_000
        monkeypatch.setattr(clock, "time", SimpleNamespace(time_ns=lambda: later_ns))
        assert (await writer.status())["lanes"]["EMERGENCY"]["oldest_age_ms"] >= 60_000


async def test_find_and_upcoming_tell_where_a_change_is(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        await writer.operate("pause")
        debounced, first, urgent = (
            await writer.take(LWW, "a"),
            await writer.take(TXN, "b"),
            await writer.take(EMERGENCY, "c"),
        )
        found = await writer.handle.query("find", args=["unit", "a"])
        assert [(one["change_id"], one["place"]) for one in found["changes"]] == [(debounced, "debounced")]
        assert 0 < found["changes"][0]["due_in_ms"] <= 120_000
        assert found["changes"][0]["waits_for"] == "the debounce to end, somebody to resume"
        assert [one["change_id"] for one in await writer.handle.query("upcoming", 5)] == [urgent, first]
        assert (await writer.handle.query("find", args=["unit", "nobody"]))["changes"] == []


async def test_an_act_is_durable_before_the_machine_follows(stage: Stage) -> None:
    """Else a writer that ends in between comes back otherwise than its operator left it."""
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        writer.world.decisions_closed = True
        asked = await writer.handle.start_update("pause", request(), wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        assert (await writer.status())["paused"] is None
        writer.world.decisions_closed = False
        await writer.skip(30)
        assert await asked.result() == "paused"
        assert (await writer.status())["paused"] is not None


async def test_acts_are_recorded_in_the_order_in_which_they_came(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        writer.world.decisions_closed = True
        first = await writer.handle.start_update("pause", request(), wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        second = await writer.handle.start_update("flush", request(), wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        third = await writer.handle.start_update("pause", request(), wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        writer.world.decisions_closed = False
        await writer.skip(60)
        assert (await first.result(), await second.result()) == ("paused", 0)
        with pytest.raises(WorkflowUpdateFailedError):
            await third.result()
        assert [decision.action for decision in writer.world.decisions] == ["pause", "flush"]


async def test_an_act_behind_three_others_is_refused_and_told_what_it_would_wait_for(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        writer.world.decisions_closed = True
        for _ in range(3):
            await writer.handle.start_update("flush", request(), wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await writer.handle.execute_update("pause", request())
        assert "3 acts wait to be recorded, the first is 'flush' by ana: repeat" in str(caught.value.cause)
        writer.world.decisions_closed = False
        await writer.skip(60)
        assert await writer.handle.execute_update("pause", request()) == "paused"


async def test_an_act_that_a_run_could_not_record_is_done_by_the_next(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        writer.world.decisions_closed = True
        asked = await writer.handle.start_update("pause", request(), wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        await writer.handle.signal("configure", WriterPolicy(sweep_ms=200_000))
        await writer.skip(5)
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await asked.result()
        assert "pause is not recorded yet" in str(caught.value.cause)
        writer.world.decisions_closed = False
        await writer.skip(60)
        await writer.until_state("PAUSED")
        assert len({decision.decision_id for decision in writer.world.decisions}) == 1
