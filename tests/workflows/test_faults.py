"""What fails around the writer, and how it goes on: lost replies, lost workers, a database that is
away, lost signals."""

from __future__ import annotations

from itertools import pairwise

import pytest
from temporalio.client import WorkflowUpdateFailedError

from oldhost_sync.policy.changes import Outcome
from oldhost_sync.policy.machine.actions import LoadOutstanding, Sweep
from oldhost_sync.policy.tuning import FIRST_SWEEP_MS, WriterPolicy
from tests.workflows.books import Reply
from tests.workflows.conftest import EMERGENCY, LWW, TXN, Stage, session_given_up, stuck, two_sends_given_up
from tests.workflows.world import EVENT_OF
from workflows.reception import BATCHES_AT_ONCE_MAX

pytestmark = pytest.mark.temporal


@pytest.mark.parametrize("reply", [Reply.LOST_AFTER, Reply.LATE, Reply.LOST_BEFORE])
async def test_a_lost_reply_is_settled_by_asking_and_the_change_applied_once(stage: Stage, reply: Reply) -> None:
    async with stage.writer(replies={1: [reply]}) as writer:
        change, next_one = await writer.take(TXN, "a"), await writer.take(TXN, "a")
        await writer.skip(60)
        await writer.until_quiet()
        assert writer.world.applied_ids == [change, next_one]
        assert [line.nonce for line in writer.world.oldhost.journal] == [1, 2]
        assert (writer.world.oldhost.gaps, writer.world.oldhost.replays) == (0, 0)


async def test_the_settle_time_is_waited_out_before_oldhost_is_believed(stage: Stage) -> None:
    async with stage.writer(replies={1: [Reply.LATE]}) as writer:
        await writer.take(TXN, "a")
        await writer.skip(60)
        await writer.until_quiet()
        assert [getattr(answer, "reason", "") or answer.state for answer in writer.world.answers][:3] == [
            "open",
            "settle",
            "open",
        ]


async def test_a_send_that_ends_without_a_word_is_settled_by_the_next_session(stage: Stage) -> None:
    async with stage.writer(sends_without_report=[1]) as writer:
        await writer.take(TXN, "a")
        await writer.skip(60)
        await writer.until_quiet()
        assert writer.world.applied_ids == [1]
        assert len(writer.world.answers) >= 2


async def test_a_session_that_does_not_open_is_tried_again_ever_more_slowly(stage: Stage) -> None:
    async with stage.writer(opening_fails=7) as writer:
        await writer.take(EMERGENCY, "a")
        await writer.skip(180)
        await writer.until_quiet()
        asked = writer.world.asked_at_ms
        pauses = [(later - earlier) / 1000 for earlier, later in pairwise(asked)]
        # A busy machine adds to each what asking took.
        for pause, least in zip(pauses[:7], [1, 2, 4, 8, 16, 30, 30], strict=True):
            assert least - 0.05 <= pause < 2 * least
        assert {alert.severity for alert in writer.world.told("no-progress")} == {"critical"}


async def test_a_session_whose_worker_is_gone_is_opened_again(stage: Stage) -> None:
    """Nobody polls its queue: the send never started, so nothing is in doubt."""
    async with stage.writer(lost_worker_epochs=[1]) as writer:
        change = await writer.take(TXN, "a")
        await writer.skip(30)
        await writer.until_quiet()
        assert writer.world.applied_ids == [change]
        assert len(writer.world.answers) == 2


async def test_a_send_that_was_given_up_with_its_worker_reports_in_vain(stage: Stage) -> None:
    async with stage.writer() as writer:
        await two_sends_given_up(writer)
        assert sorted(writer.world.applied_ids) == list(range(1, 13))
        assert len(writer.world.answers) == 2


async def test_a_worker_that_has_ended_is_not_waited_for(stage: Stage) -> None:
    async with stage.writer() as writer:
        await session_given_up(writer)
        await writer.take(TXN, "unit-1")
        await writer.until(lambda: writer.world.applied_ids == [1, 2])
        writer.world.may_report.set()
        await writer.until_quiet()
        assert [line.nonce for line in writer.world.oldhost.journal] == [1, 2]


async def test_what_falls_due_is_sent_while_a_send_that_was_given_up_goes_on(stage: Stage) -> None:
    async with stage.writer(WriterPolicy(debounce_ms=100)) as writer:
        await session_given_up(writer)
        await writer.take(LWW, "unit-1")
        await writer.until(lambda: writer.world.applied_ids == [1, 2])
        writer.world.may_report.set()
        await writer.until_quiet()


async def test_the_end_of_a_worker_without_the_session_changes_nothing(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        for argument in ("session-of-another", 7, None):
            await writer.handle.signal("worker_ended", argument)
        await writer.take(TXN, "a")
        await writer.until_quiet()
        assert len(writer.world.answers) == 1
        assert [alert.kind for alert in writer.world.alerts] == ["unreadable-signal"]


async def test_a_worker_that_opens_again_after_it_was_given_up_is_waited_for_longer(stage: Stage) -> None:
    """The third session is another worker's: nothing new is learned of the first."""
    async with stage.writer(lost_worker_epochs=[1, 2]) as writer:
        change = await writer.take(TXN, "a")
        await writer.skip(30)
        await writer.until_quiet()
        assert writer.world.applied_ids == [change]
        sends = [
            event.activity_task_scheduled_event_attributes
            async for event in writer.handle.fetch_history_events()
            if event.activity_task_scheduled_event_attributes.activity_type.name == "send"
        ]
        assert [send.schedule_to_start_timeout.seconds for send in sends] == [2, 4, 4]
        assert [send.heartbeat_timeout.seconds for send in sends] == [6, 12, 12]


async def test_a_probe_that_finds_a_difference_ends_the_session_and_halts(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        writer.world.oldhost.foreign_write(0)
        await writer.skip(301)
        await writer.until(lambda: writer.world.told("halted"))
        assert "foreign write" in writer.world.told("halted")[0].message
        assert writer.world.oldhost.replays == 0


async def test_an_idle_writer_probes_before_a_middlebox_forgets_its_connection(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.skip(3610)
        # One probe in each 100 s and a little: the connection's time in the idle loop is added to each.
        assert writer.world.probes in (35, 36)


async def test_the_sweep_finds_what_a_lost_signal_carried(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        stray = await writer.world.accept(TXN, "a")
        await writer.skip(400)
        await writer.until_quiet()
        assert writer.world.applied_ids == [stray.change_id]
        await writer.until(lambda: writer.world.told("strays"))


async def test_what_came_before_a_page_was_read_and_is_not_taken_yet_is_no_stray(stage: Stage) -> None:
    """A worker comes back: the relay's batches have queued up, and the sweep's page is there with them."""
    policy = WriterPolicy(debounce_ms=900_000, max_wait_ms=900_000)
    async with stage.idle_writer(policy) as writer, stage.activities(writer.world):
        async with stage.workflows(cache=0):
            await writer.until_state("SENDING")
            writer.world.stuck.append("sweep")
            await writer.skip(FIRST_SWEEP_MS / 1000 + 0.5)
            sweep = await stuck(writer, "sweep")
        for number in range(10 * BATCHES_AT_ONCE_MAX):
            await writer.take(LWW, f"unit-{number}")
        await sweep.complete(writer.world.books.page(Sweep(0), await writer.world.now_ms()))
        async with stage.workflows(cache=0):
            await writer.until_status(lambda status: status["debounced"] == 10 * BATCHES_AT_ONCE_MAX)
            await writer.skip(1)
            assert not writer.world.told("strays")


async def test_a_first_start_rebuilds_from_mariadb_page_by_page(stage: Stage) -> None:
    async with stage.idle_writer(page_size=3) as writer:
        changes = [await writer.world.accept(TXN, f"unit-{number}") for number in range(10)]
        async with stage.workers(writer.world):
            await writer.until_quiet()
            rest = [
                page.after_id
                for page in writer.world.pages
                if isinstance(page, LoadOutstanding) and page.part == "rest"
            ]
            assert rest == [0, 3, 6, 9]
            assert writer.world.applied_ids == [ref.change_id for ref in changes]


async def test_a_rebuilt_writer_sends_what_was_held_when_its_dead_letter_is_discarded(stage: Stage) -> None:
    async with stage.writer(replies={1: [Reply.REJECTED]}) as writer:
        dead = await writer.take(TXN, "a")
        await writer.until_rejected()
        held = await writer.take(TXN, "a")
        await writer.handle.terminate()
        writer.handle = await stage.start(writer.world)
        status = await writer.until_status(lambda status: status["state"] == "SENDING")
        assert status["dead_letters"] == 1
        await writer.operate("discard", change_id=dead)
        await writer.until(lambda: writer.world.applied_ids == [held])


async def test_a_rebuilt_writer_knows_that_it_is_paused(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.until_state("SENDING")
        await writer.operate("pause")
        change = await writer.take(TXN, "a")
        await writer.handle.terminate()
        writer.handle = await stage.start(writer.world)
        status = await writer.until_status(lambda status: status["state"] == "PAUSED")
        assert status["paused"] == {"operator": "ana", "reason": "test", "remaining_ms": None}
        assert len(writer.world.answers) == 1
        await writer.operate("resume")
        await writer.until(lambda: writer.world.applied_ids == [change])


async def test_an_operator_who_comes_while_the_books_are_read_is_asked_to_come_again(stage: Stage) -> None:
    """What is read then would undo what was decided meanwhile."""
    async with stage.writer(books_closed=True) as writer:
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await writer.operate("pause")
        assert "try again in a moment" in str(caught.value.cause)
        writer.world.books_closed = False
        await writer.skip(60)
        await writer.until_state("SENDING")
        assert await writer.operate("pause") == "paused"


async def test_a_rebuild_waits_for_the_database(stage: Stage) -> None:
    async with stage.writer(books_closed=True) as writer:
        change = await writer.take(TXN, "a")
        assert (await writer.status())["state"] == "REBUILDING"
        await writer.skip(20)
        writer.world.books_closed = False
        await writer.skip(60)
        await writer.until_quiet()
        assert writer.world.applied_ids == [change]


async def test_what_breaks_the_machines_rules_halts_the_writer_durably(stage: Stage) -> None:
    """Level L0: it neither goes on as if nothing were, nor does the workflow fail and try again for ever."""
    async with stage.writer(strange_fates=[1]) as writer:
        await writer.take(TXN, "a")
        status = await writer.until_state("HALTED")
        assert "invariant violated" in status["breaker"]["reason"]
        await writer.take(TXN, "b")
        await writer.until(lambda: writer.world.told("halted") and writer.world.books.halted)
        assert "EVAPORATED" in writer.world.books.halted
        assert writer.world.applied_ids == [1]


@pytest.mark.slow
@pytest.mark.timeout(600)  # 17 s of CPU
async def test_a_simulated_day(stage: Stage) -> None:
    """24 hours of all classes: a ban, rejections, lost replies, a restore that is resolved; every fate is recorded."""
    async with stage.writer() as writer:
        world, rejected = writer.world, list[int]()
        for hour in range(24):
            for turn in range(4):
                cls = (LWW, LWW, LWW, TXN, LWW, LWW, EMERGENCY, LWW)[(4 * hour + turn) % 8]
                ref = await world.accept(cls, f"unit-{(7 * hour + turn) % 5}", f"payload {turn % 3}")
                if hour == 7 and turn == 0:
                    world.replies[ref.change_id] = [Reply.BAN]
                elif hour % 5 == 2 and turn == 1:
                    world.replies[ref.change_id] = [Reply.LOST_AFTER]
                elif hour % 5 == 3 and turn == 3:
                    world.replies[ref.change_id] = [Reply.REJECTED]
                    rejected.append(ref.change_id)
                await writer.deliver(ref)
                await writer.skip(900)
            if hour == 15:
                world.oldhost.restore(world.oldhost.expected - 3)
                await writer.skip(900)
                await writer.until_state("HALTED")
                await writer.operate("resolve", mode="resend")
        for change_id in world.books.dead_letters():
            await writer.operate("retry", change_id=change_id)
        await writer.skip(1200)
        await writer.until_quiet()
        outcomes = [change.outcome for change in world.books.changes.values()]
        assert None not in outcomes
        assert outcomes.count(Outcome.APPLIED) > 50
        assert world.told("ban")
        assert (world.oldhost.gaps, world.oldhost.replays, world.oldhost.refused_in_ban) == (0, 0, 0)
        journal = world.oldhost.journal
        nonces = [line.nonce for line in journal]
        assert all(earlier < later for earlier, later in pairwise(nonces))
        used_up = sum(not world.replies[change_id] for change_id in rejected)  # a rejection takes a nonce too
        assert world.oldhost.expected - 1 == len(nonces) + used_up
        ends_with = {line.change.ref.key: line.change.payload for line in journal if line.change}
        accepted = {change.ref.key: change.payload for change in world.books.changes.values()}
        lww = [key for key in accepted if key.event_type == EVENT_OF[LWW]]
        assert [ends_with[key] for key in lww] == [accepted[key] for key in lww]
        events = [event async for event in writer.handle.fetch_history_events()]
        assert len(events) < 12_000
