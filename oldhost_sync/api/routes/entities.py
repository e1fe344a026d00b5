"""One entity for people: what the application shows, what OldHost has, and where its changes are."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from sqlalchemy.engine import Connection

from oldhost_sync.api.access.auth import OPERATORS, WATCHERS, adder, caller_of
from oldhost_sync.api.access.words import seen_by
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.field_types import FLAG, Id, Name
from oldhost_sync.api.problems import Problem, forbidden
from oldhost_sync.api.view_schemas import Entity
from oldhost_sync.store.views.entity_comparison import EntityView, compare_entity
from oldhost_sync.store.views.payloads import note_entity_read

EntityType = Annotated[Name, Path(examples=["unit"])]
EntityId = Annotated[Id, Path(examples=["12B"])]
Payloads = Annotated[
    bool, FLAG, Query(description="Include the payloads; only for role ops, and recorded in the audit")
]


class EntityRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "entities")
        summary = "One entity: its state here and at OldHost, and its outstanding, held, dead and scheduled changes"
        path = "/api/entities/{entity_type}/{entity_id:path}"
        add("GET", path, self.get, Entity, summary, WATCHERS, (404, 405, 422))

    async def get(
        self, request: Request, entity_type: EntityType, entity_id: EntityId, payloads: Payloads = False
    ) -> Entity:
        """States are compared key by key. If the writer does not answer, `writer` is null and `note` says why."""
        caller, host = caller_of(request), self._dependencies.host
        if payloads and caller.role not in OPERATORS:
            raise forbidden(caller.role, OPERATORS)

        def look(connection: Connection) -> EntityView | None:
            found = compare_entity(connection, host, entity_type, entity_id, payloads=payloads)
            if payloads and found is not None:
                note_entity_read(connection, host, entity_type, entity_id, operator=caller.operator)
            return found

        found = await self._dependencies.database.run(look)
        if found is None:
            raise Problem(
                404,
                "unknown-entity",
                "There is no such entity",
                "No change was ever accepted for an entity of that type and id.",
                "Check the type and the id; GET /api/search?q= finds ids of every type.",
            )
        writer, note = await self._ask_writer(entity_type, entity_id)
        return Entity.model_validate({**asdict(seen_by(caller, found)), "writer": writer, "note": note})

    async def _ask_writer(self, entity_type: str, entity_id: str) -> tuple[dict[str, Any] | None, str | None]:
        try:
            found: dict[str, Any] = await self._dependencies.writer.query("find", entity_type, entity_id)
        except Problem as problem:
            return None, str(problem.content["detail"])
        return found, None
