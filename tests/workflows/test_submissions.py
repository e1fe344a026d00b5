"""Applications that speak to the workflow itself: `submit_change`, `apply_now`, and whatever else comes by signal."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateStage
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from oldhost_sync.policy.tuning import WriterPolicy
from tests.workflows.books import Reply
from tests.workflows.conftest import EMERGENCY, TXN, Stage, Writer, stuck
from workflows import messages

pytestmark = pytest.mark.temporal

GOOD = {"entity_type": "unit", "entity_id": "a", "event_type": "booking_created", "payload": {"guest": 7}}
URGENT = {"entity_type": "unit", "entity_id": "a", "event_type": "guest_locked_out", "payload": {"door": 1}}


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


async def still_works(writer: Writer) -> None:
    before = len(writer.world.applied_ids)
    await writer.take(TXN, "canary")
    await writer.until(lambda: len(writer.world.applied_ids) > before)


async def refusal(writer: Writer, argument: Any) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await writer.handle.execute_update("apply_now", argument)
    assert isinstance(caught.value.cause, ApplicationError)
    return caught.value.cause.message


# ------------------------------------------------------------------------------------------------------- submit_change


async def test_a_submitted_change_is_recorded_and_sent(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.handle.signal("submit_change", GOOD)
        await writer.until(lambda: writer.world.applied_ids == [1])
        (submission,) = writer.world.submissions
        assert submission.change == GOOD


async def test_a_submission_waits_for_the_database_to_come_back(stage: Stage) -> None:
    async with stage.writer() as writer:
        writer.world.books_closed = True
        await writer.handle.signal("submit_change", GOOD)
        await writer.skip(100)
        writer.world.books_closed = False
        await writer.skip(60)
        await writer.until(lambda: writer.world.applied_ids == [1])


@pytest.mark.parametrize(
    "change",
    [
        {"entity_type": "unit"},
        ["a", "list"],
        "text",
        7,
        None,
        {},
        raw(b"\xff\xfe\x00not json"),
        raw(b'{"cut": '),
        raw(b"bytes", b"binary/plain"),
        raw(b"", b"binary/null"),
        raw(b"?", b"of/another/make"),
        raw(b"\x01", b"binary/zlib"),
        raw(b"[" * 5_000 + b"]" * 5_000),
        raw(b'{"a":' * 300 + b"1" + b"}" * 300),
        raw(b'"' + b"x" * 1_500_000 + b'"'),
        raw(b'{"entity_id": "\\ud800", "n": NaN, "i": Infinity}'),
    ],
    ids=lambda change: str(change)[:30] if not isinstance(change, RawValue) else repr(change.payload.data[:12]),
)
async def test_what_is_no_change_becomes_a_refused_one(stage: Stage, change: Any) -> None:
    async with stage.writer() as writer:
        await writer.handle.signal("submit_change", change)
        await writer.until(lambda: len(writer.world.refused) == 1)
        await still_works(writer)


async def test_a_signal_without_an_argument_becomes_a_refused_change(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.handle.signal("submit_change")
        await writer.until(lambda: len(writer.world.refused) == 1)
        await still_works(writer)


async def test_arguments_too_many_are_ignored(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.handle.signal("submit_change", args=[GOOD, "and more"])
        await writer.handle.signal("enqueue", args=[{"refs": []}, raw(b"\xff"), 3])
        await writer.until(lambda: writer.world.applied_ids == [1])
        await still_works(writer)


# ------------------------------------------------------------------------------------------------------ other signals


@pytest.mark.parametrize(
    "batch",
    [
        "nonsense",
        {"refs": "nonsense"},
        {"refs": [1, None, [], {}, "abcdef", [1, "LWW", "unit", "a", "e"]]},
        {"refs": [[1e999, "LWW", "unit", "a", "e", 1, ""]]},
        {"refs": [[10**30, "TXN", "unit", "a", "e", 1, ""], [1, "BEST", "unit", "a", "e", 1, ""]]},
        {"refs": [[-1, "TXN", "unit", "a", "e", 1, ""], [1, "TXN", "", "a", "e", 1, ""]]},
        {"refs": [[1, "TXN", "unit", "x" * 10_000, "e", 1, ""], [1, "TXN", "unit", "a", "e", -5, ""]]},
        raw(b"\xff"),
    ],
    ids=range(8),
)
async def test_refs_that_are_none_are_told_to_people(stage: Stage, batch: Any) -> None:
    async with stage.writer() as writer:
        await writer.handle.signal("enqueue", batch)
        await writer.until(lambda: writer.world.told("unreadable-signal"))
        await still_works(writer)


async def test_the_good_refs_of_a_bad_batch_are_taken(stage: Stage) -> None:
    async with stage.writer() as writer:
        ref = await writer.world.accept(TXN, "a")
        good: list[Any] = [ref.change_id, "TXN", "unit", "a", ref.event_type, ref.accepted_at_ms, ""]
        await writer.handle.signal("enqueue", {"refs": ["bad", good, None]})
        await writer.until(lambda: writer.world.applied_ids == [1])


async def test_a_signal_of_an_unknown_name_is_told_to_people(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.handle.signal("sumbit_change", GOOD)
        await writer.until(lambda: writer.world.told("unreadable-signal"))
        assert "'sumbit_change'" in writer.world.told("unreadable-signal")[0].message


async def test_a_policy_that_is_none_changes_nothing(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.handle.signal("configure")
        await writer.handle.signal("configure", args=[{}, "and more"])
        await writer.handle.signal("configure", "faster!")
        await writer.handle.signal("configure", {"debounce_ms": "soon"})
        await still_works(writer)


@pytest.mark.slow
async def test_a_thousand_malformed_signals_stop_nothing(stage: Stage) -> None:
    async with stage.writer() as writer:
        for number in range(250):
            await writer.handle.signal("submit_change", {"number": number})
            await writer.handle.signal("enqueue", {"refs": [number]})
            await writer.handle.signal(f"unknown-{number}", number)
            await writer.handle.signal("submit_change", raw(b"\xff"))
        await writer.until(lambda: len(writer.world.refused) == 500)
        assert len(writer.world.told("unreadable-signal")) <= 3
        await still_works(writer)


# ----------------------------------------------------------------------------------------------------------- apply_now


async def test_apply_now_returns_the_nonce(stage: Stage) -> None:
    async with stage.writer() as writer:
        answer = await writer.handle.execute_update("apply_now", {**URGENT, "idempotency_key": "k1"})
        assert (answer["status"], answer["nonce"], answer["idempotency_key"]) == ("APPLIED", 1, "k1")


async def test_apply_now_again_returns_the_same_nonce(stage: Stage) -> None:
    async with stage.writer() as writer:
        answers = [
            await writer.handle.execute_update("apply_now", {**URGENT, "idempotency_key": "k"}) for _ in range(2)
        ]
        assert [answer["nonce"] for answer in answers] == [1, 1]
        assert writer.world.applied_ids == [1]


async def test_two_at_once_with_one_key_both_get_the_nonce(stage: Stage) -> None:
    import asyncio

    async with stage.writer() as writer:
        change = {**URGENT, "idempotency_key": "k"}
        both = await asyncio.gather(*[writer.handle.execute_update("apply_now", change) for _ in range(2)])
        assert [answer["nonce"] for answer in both] == [1, 1]
        await still_works(writer)


async def test_a_result_that_comes_in_the_task_in_which_the_run_may_end_is_the_answer(stage: Stage) -> None:
    """The SDK applies a signal of the same task first, and the run's time for its activities is over."""
    async with stage.idle_writer() as writer, stage.activities(writer.world):
        async with stage.workflows(cache=0):
            await writer.until_state("SENDING")
            writer.world.stuck.append("record_submissions")
            update = await writer.handle.start_update(
                "submit", GOOD, id="once", wait_for_stage=WorkflowUpdateStage.ACCEPTED
            )
            recording = await stuck(writer, "record_submissions")
            await writer.handle.signal("configure", WriterPolicy(debounce_ms=1))
            await writer.until_state("RENEWING")
        await recording.complete([messages.Recorded("k", change_id=1)])
        await writer.skip(3)
        await writer.handle.signal("enqueue", messages.EnqueueBatch.of([]))
        async with stage.workflows(cache=0):
            assert (await update.result())["change_id"] == 1


async def test_apply_now_is_told_of_a_rejection(stage: Stage) -> None:
    async with stage.writer(replies={1: [Reply.REJECTED]}) as writer:
        answer = await writer.handle.execute_update("apply_now", URGENT)
        assert answer["status"] == "DEAD"


async def test_apply_now_again_after_a_rejection_says_dead_though_the_nonce_is_used(stage: Stage) -> None:
    async with stage.writer(replies={1: [Reply.REJECTED]}) as writer:
        change = {**URGENT, "idempotency_key": "k"}
        answers = [await writer.handle.execute_update("apply_now", change) for _ in range(2)]
        assert [(answer["status"], answer["nonce"]) for answer in answers] == [("DEAD", 1), ("DEAD", 1)]


async def test_apply_now_says_accepted_after_25_seconds(stage: Stage) -> None:
    async with stage.writer(opening_fails=100) as writer:
        began_at_ms = await writer.world.now_ms()
        update = await writer.handle.start_update("apply_now", URGENT, wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        await writer.skip(24)
        await writer.skip(2)
        answer = await update.result()
        assert (answer["status"], answer["nonce"]) == ("WAITING", None)
        assert "not yet applied" in answer["message"]
        assert 25_000 <= await writer.world.now_ms() - began_at_ms < 60_000


async def test_apply_now_is_refused_when_the_database_does_not_answer_for_ten_seconds(stage: Stage) -> None:
    """Ten that wait without end would be all that Temporal lets wait, and no operator's update would come through."""
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        writer.world.books_closed = True
        began_at_ms = await writer.world.now_ms()
        update = await writer.handle.start_update(
            "apply_now", {**URGENT, "idempotency_key": "k7"}, wait_for_stage=WorkflowUpdateStage.ACCEPTED
        )
        await writer.skip(12)
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await update.result()
        assert "not recorded within 10 s" in str(caught.value.cause)
        assert "idempotency_key 'k7'" in str(caught.value.cause)
        assert await writer.world.now_ms() - began_at_ms < 25_000


async def test_the_limit_of_apply_now_never_ends_with_a_second_at_which_the_test_server_would_forget_it(
    stage: Stage,
) -> None:
    async with stage.writer() as writer:
        await writer.handle.execute_update("apply_now", URGENT)
        [limit] = [
            event.event_time.ToMicroseconds() + scheduled.schedule_to_close_timeout.ToMicroseconds()
            async for event in writer.handle.fetch_history_events()
            if (scheduled := event.activity_task_scheduled_event_attributes).activity_type.name == "record_submissions"
        ]
        assert limit % 1000 == 500


async def test_apply_now_in_a_ban_says_so_at_once(stage: Stage) -> None:
    async with stage.writer(replies={1: [Reply.BAN]}) as writer:
        await writer.take(EMERGENCY, "b")
        await writer.until(lambda: writer.world.told("ban"))
        began_at_ms = await writer.world.now_ms()
        answer = await writer.handle.execute_update("apply_now", URGENT)
        assert answer["status"] == "WAITING"
        assert "banned by OldHost" in answer["message"]
        assert await writer.world.now_ms() - began_at_ms < 5_000


async def test_apply_now_in_a_pause_says_so_at_once(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        await writer.operate("pause")
        answer = await writer.handle.execute_update("apply_now", URGENT)
        assert "the writer is paused" in answer["message"]


async def test_apply_now_refuses_what_is_no_emergency(stage: Stage) -> None:
    async with stage.writer() as writer:
        assert "booking_created is not EMERGENCY" in await refusal(writer, GOOD)
        assert "lacks payload" in await refusal(writer, {name: URGENT[name] for name in list(URGENT)[:3]})
        assert "takes no not_before: leave it out" in await refusal(
            writer, {**URGENT, "not_before": "2027-01-01T00:00:00Z"}
        )
        assert "too large" in await refusal(writer, {**URGENT, "payload": {"x": "y" * 70_000}})
        assert "nests deeper" in await refusal(writer, {**URGENT, "payload": deep(40)})
        await still_works(writer)


@pytest.mark.parametrize("argument", ["text", 7, ["list"], None, raw(b"\xff")], ids=range(5))
async def test_apply_now_refuses_what_is_no_object(stage: Stage, argument: Any) -> None:
    async with stage.writer() as writer:
        with pytest.raises(WorkflowUpdateFailedError):
            await writer.handle.execute_update("apply_now", argument)
        await still_works(writer)


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"inner": value}
    return value


async def urgent(writer: Writer, unit: str) -> Any:
    return await writer.handle.start_update(
        "apply_now", URGENT | {"entity_id": unit}, wait_for_stage=WorkflowUpdateStage.ACCEPTED
    )


async def test_four_wait_for_a_fate_the_fifth_is_told_to_ask_and_operators_get_through(stage: Stage) -> None:
    async with stage.writer(opening_fails=1_000) as writer:
        waiting = [await urgent(writer, f"unit-{number}") for number in range(4)]
        await writer.until_status(lambda status: status["waiting"] == 4)  # recorded: an update is accepted before that
        fifth = await writer.handle.execute_update("apply_now", URGENT | {"entity_id": "five"})
        assert fifth["status"] == "WAITING"
        assert "others wait already" in fifth["message"]
        await writer.operate("pause")
        answers = [await update.result() for update in waiting]
        assert {answer["status"] for answer in answers} == {"WAITING"}


# -------------------------------------------------------------------------------------------------------------- submit


async def test_submit_is_answered_when_the_change_is_recorded(stage: Stage) -> None:
    async with stage.writer() as writer:
        answer = await writer.handle.execute_update("submit", GOOD | {"idempotency_key": "k"})
        assert answer == {"idempotency_key": "k", "change_id": 1, "status": "WAITING"}
        assert writer.world.submissions[0].source == "submit"
        await writer.until(lambda: writer.world.applied_ids == [1])


async def test_the_same_keyless_update_again_is_the_same_change(stage: Stage) -> None:
    async with stage.writer() as writer:
        first = await writer.handle.execute_update("submit", GOOD, id="booking-7")
        await writer.handle.execute_update("submit", GOOD, id="booking-8")
        assert first["idempotency_key"].startswith("update/")
        assert len({submission.fallback_key for submission in writer.world.submissions}) == 2


async def test_submit_fails_with_the_reason_of_a_refusal(stage: Stage) -> None:
    async with stage.writer() as writer:
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await writer.handle.execute_update("submit", {"entity_type": "unit"})
        assert "lacks entity_id" in str(caught.value.cause)
        await still_works(writer)


async def test_a_keyless_signals_key_says_where_it_stands(stage: Stage) -> None:
    async with stage.writer() as writer:
        for _ in range(2):
            await writer.handle.signal("submit_change", GOOD)
        await writer.until(lambda: len(writer.world.submissions) == 2)
        run_id = (await writer.handle.describe()).run_id
        keys = [submission.fallback_key for submission in writer.world.submissions]
        assert [key.rsplit("/", 1)[0] for key in keys] == [f"signal/{run_id}/1", f"signal/{run_id}/2"]


async def test_one_submission_whose_row_is_held_holds_up_no_other_and_no_new_run(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        writer.world.held_units = ["held"]
        for unit in ("held", "free"):
            await writer.handle.signal("submit_change", GOOD | {"entity_id": unit})
        await writer.until(lambda: writer.world.applied_ids == [1])
        await writer.handle.signal("configure", WriterPolicy(sweep_ms=200_000))
        await writer.skip(5)
        writer.world.held_units = []
        await writer.skip(65)
        await writer.until(lambda: writer.world.applied_ids == [1, 2])


async def test_while_older_signals_are_looked_for_newer_ones_wait_and_sending_goes_on(stage: Stage) -> None:
    async with stage.idle_writer(recovery_fails=True) as writer, stage.workers(writer.world):
        await writer.handle.signal("submit_change", GOOD)
        change = await writer.take(TXN, "b")
        await writer.until(lambda: writer.world.applied_ids == [change])
        assert writer.world.submissions == []
        writer.world.recovery_fails = False
        await writer.until(lambda: len(writer.world.applied_ids) == 2)
