"""In virtual time: the two-minute debounce, the ten-minute cap, and what replaces what."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.changes import Outcome
from tests.workflows.books import Reply
from tests.workflows.conftest import EMERGENCY, LWW, TXN, Stage

pytestmark = pytest.mark.temporal


async def test_an_lww_change_is_sent_two_minutes_after_its_newest_version(stage: Stage) -> None:
    async with stage.writer() as writer:
        first = await writer.take(LWW, "a")
        await writer.skip(100)
        second = await writer.take(LWW, "a")
        await writer.skip(110)
        assert writer.world.applied_ids == []
        await writer.skip(15)
        await writer.until_quiet()
        assert writer.world.applied_ids == [second]
        assert writer.world.outcome_of(first) is Outcome.SUPERSEDED


async def test_a_key_that_changes_all_the_time_is_sent_ten_minutes_after_its_first_change(stage: Stage) -> None:
    async with stage.writer() as writer:
        began_at_ms = await writer.world.now_ms()
        for _ in range(7):
            await writer.take(LWW, "a")
            await writer.skip(100)
        (line,) = writer.world.oldhost.journal
        # Without the limit: two minutes after the last one, at 720 s.
        assert 600 <= (line.at_ms - began_at_ms) / 1000 < 700


async def test_txn_and_emergency_are_sent_at_once(stage: Stage) -> None:
    async with stage.writer() as writer:
        txn, emergency = await writer.take(TXN, "a"), await writer.take(EMERGENCY, "b")
        await writer.until_quiet()
        assert sorted(writer.world.applied_ids) == [txn, emergency]


async def test_an_emergency_takes_its_units_debounced_change_along(stage: Stage) -> None:
    async with stage.writer() as writer:
        older, emergency = await writer.take(LWW, "a"), await writer.take(EMERGENCY, "a")
        await writer.until_quiet()
        assert writer.world.applied_ids == [older, emergency]


async def test_trap_08_a_late_older_change_does_not_overwrite_what_was_applied(stage: Stage) -> None:
    """Its signal was lost; by the time that it comes, a newer one of its key is at OldHost."""
    async with stage.writer() as writer:
        older, newer = await writer.world.accept(LWW, "a", "Dirty"), await writer.world.accept(LWW, "a", "Clean")
        await writer.deliver(newer)
        await writer.skip(125)
        await writer.until_quiet()
        await writer.deliver(older)
        await writer.skip(125)
        await writer.until_quiet()
        assert writer.world.applied_ids == [newer.change_id]
        assert writer.world.outcome_of(older.change_id) is Outcome.SUPERSEDED


async def test_trap_08_a_retried_older_change_does_not_overwrite_what_was_applied(stage: Stage) -> None:
    async with stage.writer(replies={1: [Reply.REJECTED]}) as writer:
        older = await writer.take(LWW, "a", "Dirty")
        await writer.skip(125)
        newer = await writer.take(LWW, "a", "Clean")
        await writer.skip(125)
        await writer.until_quiet()
        await writer.operate("retry", change_id=older)
        await writer.until_quiet()
        assert writer.world.applied_ids == [newer]
        assert writer.world.outcome_of(older) is Outcome.STALE


async def test_a_state_that_oldhost_has_already_takes_no_nonce(stage: Stage) -> None:
    async with stage.writer() as writer:
        await writer.take(LWW, "a", "Clean")
        await writer.skip(125)
        again = await writer.take(LWW, "a", "Clean")
        await writer.skip(125)
        await writer.until_quiet()
        assert writer.world.outcome_of(again) is Outcome.NO_OP
        assert writer.world.oldhost.expected == 2


async def test_a_thing_signalled_twice_is_sent_once(stage: Stage) -> None:
    async with stage.writer() as writer:
        ref = await writer.world.accept(TXN, "a")
        await writer.deliver(ref, ref)
        await writer.deliver(ref)
        await writer.until_quiet()
        await writer.deliver(ref)
        await writer.until_quiet()
        assert writer.world.applied_ids == [ref.change_id]
