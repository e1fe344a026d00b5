"""The API: its OpenAPI document, rendered once, in another thread: it is half a megabyte and does not change."""

from __future__ import annotations

import asyncio
from functools import cache

from fastapi import FastAPI
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.rights import WATCHERS
from oldhost_sync.console.api_document import read_document
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX


class ApiPage(Page):
    title = "API"
    path = f"{PREFIX}/api"

    def mount(self, add: Adder) -> None:
        add("GET", self.path, self.show, WATCHERS)

    async def show(self, request: Request) -> Response:
        return self.page(request, "api.html", document=await asyncio.to_thread(self._rendered, request.app))

    @cache  # noqa: B019 - pages live as long as their process
    def _rendered(self, app: FastAPI) -> Markup:
        return self.console.layout.part("api", api=read_document(app.openapi()))
