"""All hosts that this process serves, with their states; each leads to its own console."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.rights import WATCHERS, caller_of
from oldhost_sync.api.routes.hosts import HOSTS, list_of
from oldhost_sync.console.page import Adder, Console, Page
from oldhost_sync.console.paths import PREFIX


class HostsPage(Page):
    title = "Hosts"
    path = f"{PREFIX}/{HOSTS}"

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._list = list_of(console.dependencies)

    def mount(self, add: Adder) -> None:
        add("GET", self.path, self.show, WATCHERS)

    async def show(self, request: Request) -> Response:
        names = self.console.dependencies.hosts_for(caller_of(request).name)
        return self.page(request, "hosts.html", hosts=await self._list.lines(names))
