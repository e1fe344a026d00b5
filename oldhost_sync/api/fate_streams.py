"""Fates as server-sent events: the feed, pushed. One look a second serves all listeners of a host.

The id of an event is a cursor of the feed, at the end of each page: after an interruption a reader gets every fate that
it has not got, and perhaps some that it has. A reader that reads nothing is ended as any other
(`http_limits.UNREAD_SECONDS_MAX`); a stream also ends when it can't be read further, and the next request says why.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from oldhost_sync.api import http_limits
from oldhost_sync.api.problems import Problem
from oldhost_sync.store.errors import StoreError

# A page after a cursor, as text; the cursor behind it; whether more is there already.
Page = tuple[str, str, bool]


class FateStreams:
    """The streams of one host. `newest`: reads the number of the last fate."""

    def __init__(self, newest: Callable[[], Awaitable[int]], clock: Callable[[], float]) -> None:
        self._newest = newest
        self._clock = clock
        self._number = 0
        self._news = asyncio.Condition()
        self._looking: asyncio.Task[None] | None = None
        self._of_token: Counter[str] = Counter()
        self._is_closed = False

    def is_full_for(self, token: str) -> bool:
        """Whether there is no place for another stream of this token."""
        mine = self._of_token[token] >= http_limits.STREAMS_OF_ONE_TOKEN_MAX
        return self._is_closed or mine or self._of_token.total() >= http_limits.STREAMS_MAX

    async def events(
        self, token: str, cursor: str, read: Callable[[str], Awaitable[Page]]
    ) -> AsyncGenerator[str, None]:
        """The text of a stream that begins after `cursor`. `read`: the page after one."""
        self._of_token[token] += 1
        until = self._clock() + http_limits.STREAM_SECONDS_MAX
        try:
            self._looking = self._looking or asyncio.create_task(self._look())
            yield "retry: 3000\n\n"
            while not self._is_closed and self._clock() < until:
                seen = self._number
                try:
                    text, cursor, more = await read(cursor)
                except (Problem, StoreError):
                    return
                if text:
                    yield text
                if more:
                    await asyncio.sleep(http_limits.STREAM_PAGE_SECONDS)
                elif not await self._has_news(seen):
                    yield ":\n\n"
        finally:
            self._of_token[token] -= 1
            if not self._of_token.total():
                self._stop()

    async def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        self._stop()
        async with self._news:
            self._news.notify_all()

    async def _has_news(self, seen: int) -> bool:
        """Wait for another fate than `seen`, or for as long as a stream may be quiet."""
        with suppress(TimeoutError):
            async with asyncio.timeout(http_limits.STREAM_QUIET_SECONDS), self._news:
                await self._news.wait_for(lambda: self._is_closed or self._number != seen)
                return True
        return False

    async def _look(self) -> None:
        while True:
            with suppress(Problem, StoreError):
                number = await self._newest()
                async with self._news:
                    self._number = number
                    self._news.notify_all()
            await asyncio.sleep(http_limits.STREAM_LOOK_SECONDS)

    def _stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
