"""One entity: what the application shows, what OldHost has, and what is still outstanding."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.rights import OPERATORS, WATCHERS, caller_of, operator_request, seen_by
from oldhost_sync.api.fields import Id, Name
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.requests import checked
from oldhost_sync.console.act_form import EntityAct
from oldhost_sync.console.changes_page import entity_address
from oldhost_sync.console.forms import read_fields
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.store.read.entities import compare_entity

EntityType = Annotated[Name, Path()]
EntityId = Annotated[Id, Path()]


class EntityPage(Page):
    def mount(self, add: Adder) -> None:
        add("GET", PREFIX + "/entities/{entity_type}/{entity_id:path}", self.show, WATCHERS)
        add("POST", f"{PREFIX}/entity/flush", self.flush, OPERATORS)

    async def show(self, request: Request, entity_type: EntityType, entity_id: EntityId) -> Response:
        """Payloads are compared, not shown."""
        host = self.console.dependencies.host
        found = await self.console.dependencies.database.run(
            lambda connection: compare_entity(connection, host, entity_type, entity_id, payloads=False)
        )
        if found is None:
            detail = "No change was ever accepted for an entity of that type and id."
            raise Problem(404, "unknown-entity", "There is no such entity", detail, "Check type and id.")
        found = seen_by(caller_of(request), found)
        writer, trouble = await self._ask_writer(entity_type, entity_id)
        title = f"{entity_type} {entity_id}"
        return self.page(request, "entity.html", title=title, entity=found, writer=writer, trouble=trouble)

    async def flush(self, request: Request) -> Response:
        """The debounced changes of this entity become due now."""
        act = checked(await read_fields(request, *EntityAct.model_fields), EntityAct, "form")
        message = await self.console.dependencies.writer.update("flush", operator_request(request, **act.model_dump()))
        return self.console.layout.redirect(entity_address(act.entity_type, act.entity_id), message)

    async def _ask_writer(self, entity_type: str, entity_id: str) -> tuple[dict[str, Any] | None, str]:
        try:
            found: dict[str, Any] = await self.console.dependencies.writer.query("find", entity_type, entity_id)
        except Problem as problem:
            return None, str(problem.content["detail"])
        return found, ""
