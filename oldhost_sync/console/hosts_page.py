"""All hosts that this process serves, with their states; each leads to its own console."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.auth import WATCHERS, caller_of
from oldhost_sync.api.host_apps import HOSTS
from oldhost_sync.console.layout import PREFIX
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.store.views.host_list import read_hosts


class HostsPage(Page):
    title = "Hosts"
    path = f"{PREFIX}/{HOSTS}"

    def mount(self, add: Adder) -> None:
        add("GET", self.path, self.show, WATCHERS)

    async def show(self, request: Request) -> Response:
        names = self.console.dependencies.hosts_for(caller_of(request).name)
        found = await self.console.dependencies.database.run(lambda connection: read_hosts(connection, names))
        return self.page(request, "hosts.html", hosts=found)
