"""The pages about units, and about one entity of any type."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access import OPERATORS, WATCHERS, caller_of, operator_request, seen_by
from oldhost_sync.api.problems import Problem, field_invalid
from oldhost_sync.api.requests import Id, Name, read_text_cursor, text_cursor
from oldhost_sync.console.change_pages import entity_address
from oldhost_sync.console.forms import EntityAct, read_act
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.limits import UNIT_NAME_LENGTH_MAX
from oldhost_sync.store.read.entities import PENDING_SYNC, SYNC_FAILED, SYNCED, UnitFilter, compare_entity, list_units

STATUSES = (PENDING_SYNC, SYNCED, SYNC_FAILED)
UNITS = f"{PREFIX}/units"
UNITS_SHOWN = 100
Text = Annotated[str, Query(max_length=UNIT_NAME_LENGTH_MAX)]
Cursor = Annotated[str | None, Query(max_length=1024)]


class UnitsPage(Page):
    """Units by property, name and sync status."""

    title = "Units"
    path = UNITS

    def mount(self, add: Adder) -> None:
        add("GET", UNITS, self.show, WATCHERS)

    async def show(
        self, request: Request, property_id: Text = "", name: Text = "", sync_status: Text = "", cursor: Cursor = None
    ) -> Response:
        given = {"property_id": property_id.strip(), "name": name.strip(), "sync_status": sync_status}
        given = {key: value for key, value in given.items() if value}
        if sync_status and sync_status not in STATUSES:
            raise field_invalid("query.sync_status", f"must be one of {', '.join(STATUSES)}")
        after, host = read_text_cursor(cursor), self.console.dependencies.host
        found = await self.console.dependencies.database.run(
            lambda connection: list_units(connection, host, UnitFilter(**given), after_id=after, limit=UNITS_SHOWN)
        )
        more = None
        if found.next_after is not None:
            more = f"{UNITS}?{urlencode(given | {'cursor': text_cursor(found.next_after)})}"
        return self.page(
            request, "units.html", units=found.units, given=given, more=more, statuses=STATUSES,
            later=cursor is not None,
        )  # fmt: skip


EntityType = Annotated[Name, Path()]
EntityId = Annotated[Id, Path()]


class EntityPage(Page):
    """What the application shows of an entity, what OldHost has, and what is still outstanding."""

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
        act = await read_act(request, EntityAct)
        message = await self.console.dependencies.writer.update("flush", operator_request(request, **act.model_dump()))
        return self.console.layout.redirect(entity_address(act.entity_type, act.entity_id), message)

    async def _ask_writer(self, entity_type: str, entity_id: str) -> tuple[dict[str, Any] | None, str]:
        try:
            place: dict[str, Any] = await self.console.dependencies.writer.query("find", entity_type, entity_id)
        except Problem as problem:
            return None, str(problem.content["detail"])
        return place, ""
