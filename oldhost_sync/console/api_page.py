"""The API: its OpenAPI document, rendered."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.auth import WATCHERS
from oldhost_sync.console.api_document import read_document
from oldhost_sync.console.layout import PREFIX
from oldhost_sync.console.page import Adder, Page


class ApiPage(Page):
    title = "API"
    path = f"{PREFIX}/api"

    def mount(self, add: Adder) -> None:
        add("GET", self.path, self.show, WATCHERS)

    async def show(self, request: Request) -> Response:
        app: FastAPI = request.app
        return self.page(request, "api.html", api=read_document(app.openapi()))
