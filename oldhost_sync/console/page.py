"""What a page of the console is made of, and what all pages share.

A page is a class with a `title`, a `path` and `mount`, in a file of its own with a template beside it; `pages.py` lists
them all, and the navigation follows that list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access import access, operator_request, public
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.requests import ReasonedRequest
from oldhost_sync.console.forms import read_act
from oldhost_sync.console.layout import Layout
from oldhost_sync.console.live_stream import LiveStream
from oldhost_sync.console.overview_parts import OverviewParts
from oldhost_sync.console.sign_ins import SignIns
from oldhost_sync.credentials import EncryptionKey
from oldhost_sync.settings import Role

Handler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Console:
    """What pages work with: the API's dependencies, and the console's own. `webhook`: alerts are posted to one."""

    dependencies: Dependencies
    layout: Layout
    sign_ins: SignIns
    overview: OverviewParts
    stream: LiveStream
    webhook: bool = False
    temporal_keys: Sequence[EncryptionKey] = ()

    async def act(
        self, request: Request, action: str, model: type[ReasonedRequest] = ReasonedRequest, **more: Any
    ) -> str:
        """Carry out an operator's form, in the name of the signed-in operator; returns the writer's answer.

        The form has the fields of `model`; `more` are further fields of the message. Raises a Problem.
        """
        fields = await read_act(request, model)
        message = operator_request(request, **fields.model_dump(), **more)
        return await self.dependencies.writer.update(action, message)


class Page:
    """A page. An empty `title` keeps it out of the navigation."""

    title: ClassVar[str] = ""
    path: ClassVar[str] = ""

    def __init__(self, console: Console) -> None:
        self.console = console

    def mount(self, add: Adder) -> None:
        """Add the page's routes."""
        raise NotImplementedError

    def page(self, request: Request, template: str, **values: Any) -> Response:
        """The page `template`, under this page's title unless `title` is given."""
        title = values.pop("title", self.title)
        return self.console.layout.page(request, template, title, **values)


@dataclass(frozen=True, slots=True)
class Adder:
    """Adds routes: method, path, handler, and the roles that may call it; without roles: anyone, not signed in."""

    app: FastAPI

    def __call__(self, method: str, path: str, handler: Handler, roles: Sequence[Role] = ()) -> None:
        rules = access(roles) if roles else public()
        self.app.add_api_route(
            path, handler, methods=[method], include_in_schema=False, response_class=Response, **rules
        )
