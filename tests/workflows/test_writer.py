"""The writer in virtual time: debounce, lanes, bans, operators, applications."""

from __future__ import annotations

import asyncio

from tests.workflows.conftest import EMERGENCY, LWW, TXN, running_writer


def test_an_lww_change_is_sent_two_minutes_after_its_newest_version() -> None:
    async def play() -> None:
        async with running_writer() as writer:
            await writer.enqueue((1, LWW, "a"))
            await writer.skip(100)
            await writer.enqueue((2, LWW, "a"))
            await writer.skip(110)
            assert writer.world.applied_ids == []
            await writer.skip(15)
            assert writer.world.applied_ids == [2]

    asyncio.run(play())


def test_a_ban() -> None:
    async def play() -> None:
        async with running_writer(ban_at_change=[1]) as writer:
            await writer.enqueue((1, TXN, "a"))
            await writer.until(lambda s: s["state"] == "BANNED", "banned")
            await writer.enqueue((2, LWW, "b"), (3, EMERGENCY, "c"), (4, TXN, "d"))
            await writer.skip(600)
            assert writer.world.applied_ids == []
            await writer.skip(301)
            await writer.until(lambda s: s["waiting"] == 0 and s["in_flight"] == 0, "drained")
            assert writer.world.applied_ids == [1, 3, 4, 2]
            print(await writer.status())

    asyncio.run(play())
