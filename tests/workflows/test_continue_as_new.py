"""A new run takes everything over: what waits, what is open, and every signal that races it (trap 17)."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Iterator

import pytest
from temporalio.client import WorkflowUpdateStage

from oldhost_sync.policy.machine.release import RELEASE
from oldhost_sync.policy.queue.operations import PendingOperation
from oldhost_sync.policy.tuning import WriterPolicy
from tests.workflows.books import Reply
from tests.workflows.conftest import LWW, TXN, Stage, Writer
from workflows import messages
from workflows.reception import BATCHES_AT_ONCE_MAX
from workflows.sync_writer import SyncWriterWorkflow

pytestmark = pytest.mark.temporal


async def renew(writer: Writer, policy: WriterPolicy) -> None:
    """Force a new run, as `starter.py` does with changed settings."""
    before = (await writer.handle.describe()).run_id
    await writer.handle.signal("configure", policy)
    async with asyncio.timeout(20):
        while (await writer.handle.describe()).run_id == before:
            await asyncio.sleep(0.02)


async def test_the_same_policy_begins_no_new_run(stage: Stage) -> None:
    async with stage.writer() as writer:
        before = (await writer.handle.describe()).run_id
        await writer.handle.signal("configure", WriterPolicy())
        await writer.take(TXN, "a")
        await writer.until_quiet()
        assert (await writer.handle.describe()).run_id == before


async def test_another_release_begins_a_new_run_and_the_same_none(stage: Stage) -> None:
    async with stage.writer() as writer:
        before = (await writer.handle.describe()).run_id
        await writer.handle.signal("renew", RELEASE)
        await writer.take(TXN, "a")
        await writer.until_quiet()
        assert (await writer.handle.describe()).run_id == before
        await writer.handle.signal("renew", RELEASE + 1)
        async with asyncio.timeout(20):
            while (await writer.handle.describe()).run_id == before:
                await asyncio.sleep(0.02)


async def test_what_waits_is_carried_and_the_open_session_used_on(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        change = await writer.take(LWW, "a")
        await writer.skip(60)
        await renew(writer, WriterPolicy(sweep_ms=200_000))
        status = await writer.status()
        assert (status["debounced"], status["session"]["phase"], status["session"]["epoch"]) == (1, "open", 1)
        await writer.skip(61)
        await writer.until_quiet()
        assert writer.world.applied_ids == [change]
        assert len(writer.world.answers) == 1


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def waiting_of(unit: str) -> list[PendingOperation]:
    """In all runs that this process still remembers."""
    entries = [each for each in gc.get_objects() if type(each) is PendingOperation]
    return [each for each in entries if each.ref.entity.entity_id == unit]


@pytest.mark.usefixtures("no_garbage_collection")
async def test_what_an_ended_run_held_is_freed_without_the_garbage_collector(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        await writer.take(LWW, "freed")
        await renew(writer, WriterPolicy(sweep_ms=200_000))
        await writer.until_status(lambda status: status["debounced"])
        await writer.until(lambda: len(waiting_of("freed")) == 1)


async def test_signals_that_piled_up_without_a_worker_are_all_taken_over_before_a_new_run(stage: Stage) -> None:
    """They are taken over some at a pass; a new run begins when none is left."""
    async with stage.idle_writer() as writer:
        async with stage.workers(writer.world, cache=0):
            await writer.until_state("SENDING")
        before = (await writer.handle.describe()).run_id
        for number in range(3 * BATCHES_AT_ONCE_MAX):
            await writer.take(LWW, f"unit-{number}")
        await writer.handle.signal("configure", WriterPolicy(sweep_ms=200_000))
        async with stage.workers(writer.world, cache=0):
            async with asyncio.timeout(20):
                while (await writer.handle.describe()).run_id == before:
                    await writer.skip(1)
            assert (await writer.status())["debounced"] == 3 * BATCHES_AT_ONCE_MAX


async def test_a_new_policy_holds_in_the_new_run(stage: Stage) -> None:
    async with stage.writer() as writer:
        await renew(writer, WriterPolicy(debounce_ms=10_000))
        change = await writer.take(LWW, "a")
        await writer.skip(12)
        await writer.until_quiet()
        assert writer.world.applied_ids == [change]


async def test_a_debounce_of_nothing_is_a_policy_too(stage: Stage) -> None:
    async with stage.writer() as writer:
        await renew(writer, WriterPolicy(debounce_ms=0, max_wait_ms=0))
        change = await writer.take(LWW, "a")
        await writer.until(lambda: writer.world.applied_ids == [change])


async def test_a_ban_a_pause_and_a_hold_are_carried(stage: Stage) -> None:
    async with stage.writer(replies={1: [Reply.REJECTED], 3: [Reply.BAN]}) as writer:
        await writer.take(TXN, "dead")
        await writer.until_rejected()
        await writer.take(TXN, "dead")
        await writer.take(TXN, "a")
        await writer.until(lambda: writer.world.told("ban"))
        await writer.operate("pause")
        await renew(writer, WriterPolicy(sweep_ms=200_000))
        status = await writer.status()
        assert status["paused"]["operator"] == "ana"
        assert status["breaker"]["state"] == "OPEN"
        assert (status["held"], status["dead_letters"], status["in_doubt"]) == (1, 1, 1)
        await writer.operate("resume")
        await writer.skip(905)
        await writer.until_quiet()
        assert writer.world.applied_ids == [3]
        assert writer.world.oldhost.refused_in_ban == 0


async def test_trap_17_no_signal_is_lost_between_two_runs(stage: Stage) -> None:
    """Signals hail down while run after run begins anew; each change arrives and is applied once."""
    async with stage.writer() as writer:

        async def hail(part: int) -> None:
            for number in range(25):
                await writer.take(TXN, f"unit-{part}-{number % 5}")

        async def again() -> None:
            for number in range(6):
                await renew(writer, WriterPolicy(sweep_ms=86_400_000 + number))  # and no sweep to find what was lost

        await asyncio.gather(again(), *(hail(part) for part in range(4)))
        await writer.until_quiet()
        assert sorted(writer.world.applied_ids) == list(range(1, 101))
        assert [line.nonce for line in writer.world.oldhost.journal] == list(range(1, 101))


async def test_what_a_run_left_unread_as_it_ended_while_it_recovered_is_recorded_by_the_next(stage: Stage) -> None:
    async with stage.idle_writer() as writer:
        for number in range(3):
            change = {"entity_type": "unit", "entity_id": str(number), "event_type": "booking_created", "payload": {}}
            await writer.handle.signal("submit_change", change)
        writer.world.recovery_fails = True
        async with stage.workers(writer.world):
            await writer.until(lambda: writer.world.recoveries)
            await renew(writer, WriterPolicy(sweep_ms=86_400_000))
            assert writer.world.submissions == []
            writer.world.recovery_fails = False
            await writer.until(lambda: len(writer.world.submissions) == 3)


async def test_trap_17_submissions_are_carried_over(stage: Stage) -> None:
    async with stage.writer() as writer:

        async def submit() -> None:
            for number in range(40):
                change = {
                    "entity_type": "unit",
                    "entity_id": str(number),
                    "event_type": "booking_created",
                    "payload": {},
                }
                await writer.handle.signal("submit_change", change)

        async def again() -> None:
            for number in range(4):
                await renew(writer, WriterPolicy(sweep_ms=86_400_000 + number))

        await asyncio.gather(again(), submit())
        await writer.until(lambda: len(writer.world.submissions) == 40)
        await writer.until(lambda: len(writer.world.applied_ids) == 40)


async def test_an_apply_now_that_waits_is_answered_and_does_not_hold_up_the_new_run(stage: Stage) -> None:
    async with stage.writer(opening_fails=100) as writer:
        urgent = {"entity_type": "unit", "entity_id": "a", "event_type": "guest_locked_out", "payload": {}}
        update = await writer.handle.start_update("apply_now", urgent, wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        await writer.until(lambda: writer.world.books.changes)
        began_at_ms = await writer.world.now_ms()
        await renew(writer, WriterPolicy(sweep_ms=200_000))
        assert (await update.result())["status"] == "WAITING"
        assert await writer.world.now_ms() - began_at_ms < 25_000
        writer.world.opening_fails = 0
        await writer.skip(60)
        await writer.until(lambda: writer.world.applied_ids == [1])


def test_trap_17_signal_handlers_never_wait() -> None:
    """An unfinished asynchronous handler would lose its signal at continue-as-new."""
    from temporalio.workflow import _Definition

    definition = _Definition.must_from_class(SyncWriterWorkflow)
    assert [name for name in definition.signals if inspect.iscoroutinefunction(definition.signals[name].fn)] == []


def test_trap_17_a_relays_batch_stays_far_below_the_payload_limit() -> None:
    import json

    from oldhost_sync.policy.limits import EVENT_TYPE_LENGTH_MAX, ID_LENGTH_MAX, RELAY_BATCH_REFS_MAX

    ref = [messages.CHANGE_ID_MAX, "EMERGENCY", "x" * 64, "x" * ID_LENGTH_MAX, "x" * EVENT_TYPE_LENGTH_MAX, 10**13]
    assert len(json.dumps({"refs": [ref] * RELAY_BATCH_REFS_MAX})) < 512 * 1024


async def timers_in(writer: Writer) -> int:
    """Started so far; none of them failed a task when its time came."""
    events = [event async for event in writer.handle.fetch_history_events()]
    assert not [event for event in events if event.HasField("workflow_task_failed_event_attributes")]
    return sum(event.HasField("timer_started_event_attributes") for event in events)


async def test_trap_18_waiting_costs_no_timer_while_something_is_on_its_way(stage: Stage) -> None:
    """Its end wakes the writer in any case; what falls due meanwhile is seen then."""
    async with stage.writer(WriterPolicy(debounce_ms=2_000, max_wait_ms=2_000)) as writer:
        await writer.until_state("SENDING")
        writer.world.may_send.clear()
        await writer.take(TXN, "a")
        await writer.until(lambda: writer.world.sends_begun)
        before = await timers_in(writer)
        # By one signal: of many in one task some are taken by the next one, which a timer brings about.
        await writer.deliver(*[await writer.world.accept(LWW, f"unit-{number}") for number in range(5)])
        await writer.until_status(lambda status: status["waiting"])
        await writer.skip(3)
        assert await timers_in(writer) == before
        writer.world.may_send.set()
        await writer.until(lambda: len(writer.world.applied_ids) == 6)


async def test_trap_18_a_change_that_only_moves_what_is_due_costs_no_timer(stage: Stage) -> None:
    async with stage.writer(WriterPolicy(max_wait_ms=3_600_000)) as writer:
        await writer.until_state("SENDING")
        before = await timers_in(writer)
        for _ in range(100):
            await writer.take(LWW, "a")
        assert await timers_in(writer) - before <= 3
        await writer.skip(121)
        await writer.until(lambda: writer.world.applied_ids == [100])


async def test_trap_18_a_time_that_has_come_is_no_failure(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        await writer.skip(700)
        assert await timers_in(writer) > 2
