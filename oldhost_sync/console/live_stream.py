"""Live pages: one poller for all listeners, which get server-sent events.

The poller runs while there is a listener. It reads the figures and renders the parts of the page once. Each listener
gets the parts that have changed since its last event. Every event has the time of the look, so a page can show its age.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import UTC, datetime

logger = logging.getLogger(__name__)

# Often enough to watch a backlog drain.
POLL_SECONDS = 2.0
# People of one on-call rota with some windows each. A stream is a connection and a few kilobytes.
LISTENERS_MAX = 64
# Of one sign-in (windows of one person), and of one token (that a team may share): a part, so that others have theirs.
OF_ONE_SIGN_IN_MAX, OF_ONE_TOKEN_MAX = 12, 32
# Browsers reconnect after this many milliseconds when a stream breaks.
_BEGIN = "retry: 3000\n\n"

Parts = Mapping[str, str]


class LiveStream:
    """`look` returns the parts by name; `pause(seconds)` waits between two looks."""

    def __init__(
        self,
        look: Callable[[], Awaitable[Parts]],
        *,
        listeners_max: int | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._look = look
        self._pause = pause
        self._listeners_max = LISTENERS_MAX if listeners_max is None else listeners_max
        self._news = asyncio.Condition()
        self._number = 0
        self._at = ""
        self._parts: dict[str, tuple[int, str]] = {}
        # The last event, and the numbers of the looks that it covers: the one seen before, and the newest.
        self._event_of, self._text = (-1, -1), ""
        self._poller: asyncio.Task[None] | None = None
        self._closed = False
        self._of_owner: Counter[str] = Counter()
        self.listeners = 0

    @property
    def is_full(self) -> bool:
        return self._closed or self.listeners >= self._listeners_max

    def is_full_for(self, sign_in: str, token: str) -> bool:
        """Whether there is no place for another listener of this sign-in and this token."""
        has_all = self._of_owner[sign_in] >= OF_ONE_SIGN_IN_MAX or self._of_owner[token] >= OF_ONE_TOKEN_MAX
        return self.is_full or has_all

    @property
    def polls(self) -> bool:
        return self._poller is not None

    async def listen(self, *owners: str) -> AsyncGenerator[str, None]:
        """Events for one listener, until it is closed. Check `is_full_for` its owners before."""
        self.listeners += 1
        self._of_owner.update(owners)
        try:
            if self._poller is None:
                self._parts.clear()
                self._poller = asyncio.create_task(self._poll())
            yield _BEGIN
            seen = 0
            while (event := await self._after(seen)) is not None:
                seen, text = event
                yield text
        finally:
            self.listeners -= 1
            self._of_owner -= Counter(owners)
            if not self.listeners:
                self._stop()

    async def _after(self, seen: int) -> tuple[int, str] | None:
        """The next look's number and what has changed since the look `seen`; None when the stream is closed."""
        async with self._news:
            await self._news.wait_for(lambda: self._closed or (bool(self._parts) and self._number > seen))
            return None if self._closed else (self._number, self._event(seen))

    async def close(self) -> None:
        """End the stream for all listeners."""
        self._closed = True
        self._stop()
        async with self._news:
            self._news.notify_all()

    def _stop(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            self._poller = None

    async def _poll(self) -> None:
        """A look that fails is logged and sends no event: the pages then show that they are not live."""
        while True:
            try:
                await self._publish(await self._look())
            except Exception:
                logger.exception("the figures for the live pages can't be read")
            await self._pause(POLL_SECONDS)

    async def _publish(self, parts: Parts) -> None:
        async with self._news:
            self._number += 1
            self._at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
            for name, html in parts.items():
                if self._parts.get(name, (0, None))[1] != html:
                    self._parts[name] = self._number, html
            self._news.notify_all()

    def _event(self, seen: int) -> str:
        """Made once for all listeners that have seen the same look."""
        if self._event_of != (seen, self._number):
            self._event_of, self._text = (seen, self._number), self._made(seen)
        return self._text

    def _made(self, seen: int) -> str:
        changed = {name: html for name, (number, html) in self._parts.items() if number > seen}
        return f"data: {json.dumps({'at': self._at, 'parts': changed}, separators=(',', ':'))}\n\n"
