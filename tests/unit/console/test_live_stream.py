"""One poller for all who listen: it begins with the first and ends with the last, and everybody gets what changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from oldhost_sync.console.live_stream import LiveStream


class Stage:
    """A stream whose looks a test makes happen one by one."""

    def __init__(self, listeners_max: int = 9) -> None:
        self.looks = 0
        self.parts: dict[str, str] = {"banner": "one", "books": "fixed"}
        self._next = asyncio.Event()
        self.stream = LiveStream(self._look, listeners_max=listeners_max, pause=self._pause)

    async def _look(self) -> dict[str, str]:
        self.looks += 1
        if "error" in self.parts:
            raise KeyError(self.parts.pop("error"))
        return dict(self.parts)

    async def _pause(self, _seconds: float) -> None:
        await self._next.wait()
        self._next.clear()

    def look_again(self, **parts: str) -> None:
        self.parts |= parts
        self._next.set()

    async def join(self, *owners: str) -> tuple[AsyncGenerator[str, None], dict[str, str]]:
        """A listener that has got its first event."""
        events = self.stream.listen(*owners)
        assert (await anext(events)).startswith("retry: ")
        return events, await parts_of(events)


async def parts_of(events: AsyncGenerator[str, None]) -> dict[str, str]:
    text = await anext(events)
    assert text.startswith("data: ")
    assert text.endswith("\n\n")
    event: dict[str, Any] = json.loads(text.removeprefix("data: "))
    assert event["at"].endswith("Z")
    parts: dict[str, str] = event["parts"]
    return parts


def test_who_joins_gets_everything_and_then_what_changed() -> None:
    async def play() -> None:
        stage = Stage()
        events, first = await stage.join()
        assert first == {"banner": "one", "books": "fixed"}
        stage.look_again(banner="two")
        assert await parts_of(events) == {"banner": "two"}
        stage.look_again()  # nothing new, but the page is told that it is live
        assert await parts_of(events) == {}

    asyncio.run(play())


def test_all_listeners_share_one_look() -> None:
    async def play() -> None:
        stage = Stage()
        listeners = [await stage.join() for _ in range(5)]
        stage.look_again(banner="two")
        assert [await parts_of(events) for events, _ in listeners] == [{"banner": "two"}] * 5
        assert stage.looks == 2

    asyncio.run(play())


def test_a_slow_listener_gets_the_newest_and_not_every_step() -> None:
    async def play() -> None:
        stage = Stage()
        (slow, _), (quick, _) = await stage.join(), await stage.join()
        for text in ("two", "three"):
            stage.look_again(banner=text)
            assert await parts_of(quick) == {"banner": text}
        assert await parts_of(slow) == {"banner": "three"}

    asyncio.run(play())


def test_nobody_looks_when_nobody_listens() -> None:
    async def play() -> None:
        stage = Stage()
        (first, _), (second, _) = await stage.join(), await stage.join()
        await first.aclose()
        assert stage.stream.polls
        await second.aclose()
        assert not stage.stream.polls

    asyncio.run(play())


def test_who_joins_after_a_rest_gets_no_old_figures() -> None:
    async def play() -> None:
        stage = Stage()
        first, _ = await stage.join()
        await first.aclose()
        stage.parts["banner"] = "later"
        _, parts = await stage.join()
        assert parts["banner"] == "later"

    asyncio.run(play())


def test_a_look_that_fails_ends_nothing() -> None:
    async def play() -> None:
        stage = Stage()
        events, _ = await stage.join()
        stage.look_again(error="a bug")
        while stage.looks < 2:
            await asyncio.sleep(0)
        stage.look_again(banner="two")
        assert await parts_of(events) == {"banner": "two"}

    asyncio.run(play())


def test_only_so_many_listen() -> None:
    async def play() -> None:
        stage = Stage(listeners_max=2)
        first, _ = await stage.join()
        full = [stage.stream.is_full]
        second, _ = await stage.join()
        full.append(stage.stream.is_full)
        await first.aclose()
        full.append(stage.stream.is_full)
        await second.aclose()
        assert full == [False, True, False]

    asyncio.run(play())


def test_a_sign_in_has_twelve_places_and_a_token_thirty_two_and_others_have_theirs() -> None:
    async def play() -> None:
        stage = Stage(listeners_max=64)
        windows = {"one": 12, "two": 12, "three": 8}
        for sign_in, count in windows.items():
            assert not stage.stream.is_full_for(sign_in, "team")
            joined = [(await stage.join(sign_in, "team"))[0] for _ in range(count)]
            assert stage.stream.is_full_for(sign_in, "team")
        assert stage.stream.is_full_for("four", "team")
        assert not stage.stream.is_full_for("four", "anna")
        await joined[0].aclose()
        assert not stage.stream.is_full_for("three", "team")
        await stage.stream.close()

    asyncio.run(play())


def test_a_closed_stream_ends_for_all_and_takes_no_more() -> None:
    async def play() -> None:
        stage = Stage()
        events, _ = await stage.join()
        await stage.stream.close()
        assert [event async for event in events] == []
        assert stage.stream.is_full
        assert not stage.stream.polls

    asyncio.run(play())
