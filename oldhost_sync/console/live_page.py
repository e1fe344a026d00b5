"""The stream that keeps a page live. It ends within a second of the sign-in that it was opened with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from oldhost_sync.api.access.rights import WATCHERS
from oldhost_sync.api.problems import unavailable
from oldhost_sync.console.door import SIGN_IN_KEY, STREAM
from oldhost_sync.console.layout import SECURITY_HEADERS
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.sign_ins import STREAM_LOOK_SECONDS, SignIn

_HEADERS = SECURITY_HEADERS | {"X-Accel-Buffering": "no"}


class LivePage(Page):
    def mount(self, add: Adder) -> None:
        add("GET", STREAM, self.stream, WATCHERS)

    async def stream(self, request: Request) -> Response:
        sign_in: SignIn = request.scope[SIGN_IN_KEY]
        if self.console.stream.is_full_for(*_owners(sign_in)):
            raise unavailable(
                "too-many-streams",
                "Too many pages are live",
                "You, or all users of this process together, already keep as many pages live as it can.",
                "Close some, or reload the page now and then.",
                retry_after=30,
            )
        return StreamingResponse(self._events(sign_in), media_type="text/event-stream", headers=_HEADERS)

    async def _events(self, sign_in: SignIn) -> AsyncIterator[str]:
        events = self.console.stream.listen(*_owners(sign_in))
        following: asyncio.Task[str] | None = None
        try:
            while await self.console.sign_ins.lasts(sign_in):
                following = following or asyncio.ensure_future(anext(events))
                await asyncio.wait({following}, timeout=STREAM_LOOK_SECONDS)
                if following.done():
                    event, following = following, None
                    yield event.result()
        except StopAsyncIteration:
            return
        finally:
            if following is not None:
                following.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await following
            await events.aclose()


def _owners(sign_in: SignIn) -> tuple[str, str]:
    """Whose pages are counted together: those of the sign-in, and those of its token."""
    return f"sign-in {sign_in.digest.hex()}", f"token {sign_in.caller.name}"
