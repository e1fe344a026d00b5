"""A halt: ledger and OldHost side by side, both ways of ending it in numbers, and the decision."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.rights import OPERATORS, WATCHERS, operator_request
from oldhost_sync.api.problems import field_invalid
from oldhost_sync.api.requests import checked
from oldhost_sync.console.act_form import HaltAct
from oldhost_sync.console.forms import read_fields
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.store.read.halt import read_halt
from oldhost_sync.store.read.host_condition import read_ban

HALT = f"{PREFIX}/halt"


class HaltPage(Page):
    title = "Halt"
    path = HALT

    def mount(self, add: Adder) -> None:
        add("GET", HALT, self.show, WATCHERS)
        add("POST", f"{HALT}/resolve", self.resolve, OPERATORS)

    async def show(self, request: Request) -> Response:
        host = self.console.dependencies.host
        found, ban = await self.console.dependencies.database.run(
            lambda connection: (read_halt(connection, host), read_ban(connection, host))
        )
        return self.page(request, "halt.html", halt=found, ban=ban)

    async def resolve(self, request: Request) -> Response:
        """The operator has to type the host's name: this prevents a decision on the wrong console."""
        host = self.console.dependencies.host
        act = checked(await read_fields(request, *HaltAct.model_fields), HaltAct, "form")
        if act.host != host:
            raise field_invalid("form.host", f"must be this host's name, {host}; nothing was decided")
        message = await self.console.dependencies.writer.update(
            "resolve", operator_request(request, reason=act.reason, mode=act.mode, epoch=act.epoch)
        )
        return self.console.layout.redirect(HALT, message)
