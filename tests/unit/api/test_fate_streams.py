"""Streams of fates: one look for all, quiet lines, and an end."""

from __future__ import annotations

import asyncio

import pytest

from oldhost_sync.api import http_limits
from oldhost_sync.api.fate_streams import FateStreams, Page
from oldhost_sync.api.problems import too_busy

pytestmark = pytest.mark.anyio
BEGIN = "retry: 3000\n\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STREAM_LOOK_SECONDS", "STREAM_PAGE_SECONDS", "STREAM_QUIET_SECONDS"):
        monkeypatch.setattr(http_limits, name, 0.01)


class Feed:
    """Fates 1 to `newest`, one a page."""

    def __init__(self, newest: int = 0) -> None:
        self.newest = newest
        self.now = 0.0
        self.looks = 0
        self.read_after: list[str] = []
        self.streams = FateStreams(self.look, lambda: self.now)

    async def look(self) -> int:
        self.looks += 1
        return self.newest

    async def read(self, cursor: str) -> Page:
        self.read_after.append(cursor)
        after = int(cursor)
        if after >= self.newest:
            return "", cursor, False
        return f"id: {after + 1}\n\n", str(after + 1), after + 1 < self.newest


async def test_what_is_there_comes_at_once_and_what_comes_later_follows() -> None:
    feed = Feed(2)
    stream = feed.streams.events("shop", "0", feed.read)
    assert [await anext(stream) for _ in range(3)] == [BEGIN, "id: 1\n\n", "id: 2\n\n"]
    feed.newest = 3
    texts = [await anext(stream) for _ in range(3)]
    assert "id: 3\n\n" in texts
    await stream.aclose()


async def test_a_quiet_stream_has_a_line_without_meaning() -> None:
    feed = Feed()
    stream = feed.streams.events("shop", "0", feed.read)
    assert [await anext(stream) for _ in range(3)] == [BEGIN, ":\n\n", ":\n\n"]
    await stream.aclose()


async def test_one_look_serves_all_and_ends_with_the_last_stream() -> None:
    feed = Feed()
    both = [feed.streams.events("shop", "0", feed.read) for _ in range(2)]
    for stream in both:
        await anext(stream)
    assert feed.streams._looking is not None
    await both[0].aclose()
    assert feed.streams._looking is not None
    await both[1].aclose()
    assert feed.streams._looking is None


async def test_a_token_has_some_places_and_all_together_have_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "STREAMS_OF_ONE_TOKEN_MAX", 1)
    monkeypatch.setattr(http_limits, "STREAMS_MAX", 2)
    feed = Feed()
    first, second = (feed.streams.events(token, "0", feed.read) for token in ("shop", "kiosk"))
    await anext(first)
    assert feed.streams.is_full_for("shop")
    assert not feed.streams.is_full_for("kiosk")
    await anext(second)
    assert feed.streams.is_full_for("vera")
    await first.aclose()
    assert not feed.streams.is_full_for("vera")
    await second.aclose()


async def test_it_ends_after_a_time_so_that_its_token_is_asked_for_again() -> None:
    feed = Feed()
    stream = feed.streams.events("shop", "0", feed.read)
    await anext(stream)
    feed.now = http_limits.STREAM_SECONDS_MAX
    assert [text async for text in stream] == []


async def test_it_ends_when_the_feed_can_not_be_read() -> None:
    async def refused(_: str) -> Page:
        raise too_busy()

    feed = Feed()
    assert [text async for text in feed.streams.events("shop", "0", refused)] == [BEGIN]


async def test_it_ends_when_the_process_does() -> None:
    feed = Feed()
    stream = feed.streams.events("shop", "0", feed.read)
    await anext(stream)
    following = asyncio.ensure_future(anext(stream, None))
    await asyncio.sleep(0)
    await feed.streams.close()
    while (text := await following) is not None:
        assert text == ":\n\n"
        following = asyncio.ensure_future(anext(stream, None))
    assert feed.streams.is_full_for("shop")
