"""The first page: what is wrong, since when, why, and what to do about it."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.rights import OPERATORS, WATCHERS
from oldhost_sync.api.routes.writer import SeriesSpan
from oldhost_sync.api.schemas import Flush
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX


class OverviewPage(Page):
    title = "Overview"
    path = PREFIX

    def mount(self, add: Adder) -> None:
        add("GET", PREFIX, self.show, WATCHERS)
        for action, handler in (("pause", self.pause), ("resume", self.resume), ("flush", self.flush)):
            add("POST", f"{PREFIX}/{action}", handler, OPERATORS)

    async def show(self, request: Request, span: SeriesSpan = SeriesSpan.HOUR) -> Response:
        parts, charts = await asyncio.gather(self.console.overview.shown(), self.console.overview.charts(span.value))
        return self.page(request, "overview.html", parts=parts, charts=charts, span=span.value, spans=list(SeriesSpan))

    async def pause(self, request: Request) -> Response:
        return self._done(await self.console.act(request, "pause"))

    async def resume(self, request: Request) -> Response:
        return self._done(await self.console.act(request, "resume"))

    async def flush(self, request: Request) -> Response:
        """Debounced changes, of one entity or of all, become due now."""
        return self._done(await self.console.act(request, "flush", Flush))

    def _done(self, message: str) -> Response:
        return self.console.layout.redirect(PREFIX, message)
