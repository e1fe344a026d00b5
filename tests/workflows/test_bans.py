"""In virtual time: what happens in and after a 15-minute ban."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.changes import Outcome
from tests.workflows.books import Reply
from tests.workflows.conftest import EMERGENCY, LWW, TXN, Stage, Writer

pytestmark = pytest.mark.temporal
BAN_S = 900
# In a ban the writer wakes up once a minute. The test server's time may stand still for good after a run that is
# terminated while it has a task.
BETWEEN_LOOKS_S = 30


async def ban(writer: Writer, unit: str = "banned") -> int:
    """A TXN change that brings the ban about; returns its id."""
    ref = await writer.world.accept(TXN, unit)
    writer.world.replies[ref.change_id] = [Reply.BAN]
    bans = len(writer.world.told("ban"))
    await writer.deliver(ref)
    await writer.until(lambda: len(writer.world.told("ban")) > bans)
    return ref.change_id


async def test_a_ban_is_waited_out_while_changes_are_taken_and_coalesced(stage: Stage) -> None:
    """The whole story: the order in which the writer hands out, and the counts after it."""
    async with stage.writer() as writer:
        banned = await ban(writer)
        versions = []
        for _ in range(5):
            versions.append(await writer.take(LWW, "busy"))
            await writer.skip(60)
        txn = await writer.take(TXN, "c")
        emergency = await writer.take(EMERGENCY, "d")
        await writer.skip(BAN_S - 5 * 60 - 20)
        assert writer.world.applied_ids == []
        assert (await writer.status())["state"] == "BANNED"
        await writer.skip(25)
        status = await writer.until_quiet()
        assert writer.world.applied_ids[0] == banned
        assert writer.world.handed_out[-3:] == [emergency, txn, versions[-1]]
        assert sorted(writer.world.applied_ids) == [banned, versions[-1], txn, emergency]
        assert [writer.world.outcome_of(one) for one in versions[:-1]] == [Outcome.SUPERSEDED] * 4
        counters = status["counters"]
        assert (counters["received"], counters["applied"], counters["superseded"]) == (8, 4, 4)
        assert counters["bans"] == 1
        assert writer.world.oldhost.refused_in_ban == 0


async def test_trap_05_the_breaker_asks_before_it_closes(stage: Stage) -> None:
    """A ban that OldHost lengthened is found by asking, not by sending."""
    async with stage.writer() as writer:
        await ban(writer)
        began_at_ms = await writer.world.now_ms()
        writer.world.oldhost.banned_until_ms += 300_000
        await writer.skip(BAN_S + 10)
        assert (await writer.status())["state"] == "BANNED"
        assert writer.world.applied_ids == []
        await writer.skip(300)
        await writer.until_quiet()
        asked = [round((at_ms - began_at_ms) / 1000) for at_ms in writer.world.asked_at_ms[1:]]
        assert asked == [BAN_S, BAN_S + 300]
        assert writer.world.oldhost.refused_in_ban == 0


async def test_what_was_banned_is_sent_first_with_the_nonce_it_has(stage: Stage) -> None:
    async with stage.writer() as writer:
        banned = await ban(writer)
        await writer.take(EMERGENCY, "d")
        await writer.skip(BAN_S + 5)
        await writer.until_quiet()
        first = writer.world.oldhost.journal[0]
        assert first.nonce == 1
        assert writer.world.applied_ids[0] == banned


async def test_an_emergency_during_a_ban_is_told_to_people_at_once(stage: Stage) -> None:
    async with stage.writer() as writer:
        await ban(writer)
        await writer.skip(300)
        accepted_at_ms = await writer.world.now_ms()
        emergency = await writer.take(EMERGENCY, "d")
        await writer.until(lambda: bool(writer.world.told("emergency-blocked")))
        (alert,) = writer.world.told("emergency-blocked")
        assert alert.change_id == emergency
        assert alert.severity == "critical"
        assert writer.world.alerts_at_ms[writer.world.alerts.index(alert)] - accepted_at_ms < 1_000


async def test_the_alert_over_emergencies_ends_with_the_ban(stage: Stage) -> None:
    async with stage.writer() as writer:
        await ban(writer)
        await writer.take(EMERGENCY, "d")
        await writer.skip(BAN_S + 5)
        await writer.until_quiet()
        await writer.until(lambda: "emergencies:ban" in [a.cause for a in writer.world.alerts if a.close])


async def test_people_are_told_of_a_ban_and_of_its_end(stage: Stage) -> None:
    async with stage.writer() as writer:
        await ban(writer)
        await writer.until(lambda: bool(writer.world.told("ban")))
        await writer.skip(BAN_S + 5)
        await writer.until_quiet()
        await writer.until(lambda: "ban" in [alert.cause for alert in writer.world.alerts if alert.close])


async def test_a_ban_costs_few_events_of_history(stage: Stage) -> None:
    """Sleeping is one timer a minute at most, and OldHost is asked once."""
    async with stage.writer() as writer:
        await ban(writer)
        before = len([event async for event in writer.handle.fetch_history_events()])
        await writer.skip(BAN_S - 5)
        after = len([event async for event in writer.handle.fetch_history_events()])
        assert after - before < 130
        assert len(writer.world.asked_at_ms) == 1


@pytest.mark.slow
async def test_a_worker_that_restarts_in_the_middle_of_a_ban_waits_on(stage: Stage) -> None:
    async with stage.idle_writer() as writer:
        async with stage.workers(writer.world, cache=0):
            banned = await ban(writer)
            await writer.skip(400)
        async with stage.workers(writer.world, cache=0):
            emergency = await writer.take(EMERGENCY, "d")
            await writer.skip(400)
            assert writer.world.applied_ids == []
            await writer.skip(200)
            await writer.until_quiet()
            assert writer.world.applied_ids == [banned, emergency]
            assert writer.world.oldhost.refused_in_ban == 0


async def test_a_workflow_that_is_lost_in_a_ban_asks_the_ledger_and_waits_on(stage: Stage) -> None:
    async with stage.writer() as writer:
        banned = await ban(writer)
        await writer.skip(400)
        await writer.handle.terminate()
        writer.handle = await stage.start(writer.world)
        await writer.until_state("BANNED")
        await writer.skip(400)
        assert writer.world.applied_ids == []
        await writer.skip(200)
        await writer.until_quiet()
        assert writer.world.applied_ids == [banned]


@pytest.mark.parametrize("set_by_s", [BAN_S, 2 * BAN_S, -7200])
async def test_a_ban_is_no_second_one_because_mariadbs_clock_was_set_and_the_workflow_lost(
    stage: Stage, set_by_s: int
) -> None:
    """The ledger takes a ban that begins in the future for one that is just over."""
    async with stage.writer() as writer:
        banned = await ban(writer)
        await writer.skip(BETWEEN_LOOKS_S)
        await writer.handle.terminate()
        left_ms = max(writer.world.books.banned_until_ms - await writer.world.now_ms(), 0)
        writer.world.books.banned_until_ms -= left_ms if set_by_s < 0 else set_by_s * 1000
        writer.world.lists.clear()
        writer.handle = await stage.start(writer.world)
        await writer.until_state("BANNED")
        await writer.until(lambda: "ban" in writer.world.reported)
        assert writer.world.told("halted") == []
        await writer.skip(BAN_S + 5)
        await writer.until_quiet()
        assert writer.world.applied_ids == [banned]
        await ban(writer, "again")
        await writer.until_state("HALTED")


async def test_people_are_told_of_a_ban_by_the_run_that_finds_it_in_the_ledger(stage: Stage) -> None:
    """The run that was banned may be lost before it tells them."""
    async with stage.writer() as writer:
        await ban(writer)
        await writer.skip(BETWEEN_LOOKS_S)
        await writer.handle.terminate()
        writer.world.lists.clear()
        writer.handle = await stage.start(writer.world)
        await writer.until(lambda: "ban" in writer.world.reported)


async def test_a_second_ban_within_the_hour_halts_even_if_the_workflow_was_lost_between_them(stage: Stage) -> None:
    async with stage.writer() as writer:
        first = await ban(writer)
        await writer.skip(BAN_S + 600)
        await writer.until_quiet()
        await writer.handle.terminate()
        writer.handle = await stage.start(writer.world)
        await writer.until_state("SENDING")
        await ban(writer, "again")
        await writer.until_state("HALTED")
        assert writer.world.applied_ids == [first]


@pytest.mark.slow
async def test_a_second_ban_within_the_hour_halts_until_somebody_resolves(stage: Stage) -> None:
    async with stage.writer() as writer:
        first = await ban(writer)
        await writer.skip(BAN_S + 600)
        await writer.until_quiet()
        second = await ban(writer, "again")
        await writer.until_state("HALTED")
        await writer.skip(24 * 3600)
        assert writer.world.applied_ids == [first]
        assert writer.world.books.halted == "a second ban within the hour"
        assert [alert.severity for alert in writer.world.told("halted")] == ["critical"]
        await writer.operate("resolve", mode="resend")
        await writer.until_quiet()
        assert writer.world.applied_ids == [first, second]
        assert (await writer.status())["state"] == "SENDING"


async def test_a_second_ban_after_the_hour_is_waited_out_as_the_first(stage: Stage) -> None:
    async with stage.writer() as writer:
        first = await ban(writer)
        await writer.skip(3700)
        second = await ban(writer, "again")
        assert (await writer.status())["state"] == "BANNED"
        await writer.skip(BAN_S + 5)
        await writer.until_quiet()
        assert writer.world.applied_ids == [first, second]


async def test_resolving_in_a_ban_waits_for_its_end(stage: Stage) -> None:
    async with stage.writer() as writer:
        await ban(writer)
        await writer.skip(BAN_S + 5)
        await writer.until_quiet()
        second = await ban(writer, "again")
        await writer.until_state("HALTED")
        await writer.operate("resolve", mode="resend")
        await writer.until_state("BANNED")
        await writer.skip(BAN_S + 5)
        await writer.until_quiet()
        assert writer.world.applied_ids[-1] == second
        assert writer.world.oldhost.refused_in_ban == 0
