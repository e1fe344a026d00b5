"""One search for everything that people may have at hand: keys, ids, names and properties."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import FastAPI, Query

from oldhost_sync.api.access.auth import WATCHERS, adder
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.view_schemas import SearchHit, SearchHits
from oldhost_sync.policy.limits import UNIT_NAME_LENGTH_MAX
from oldhost_sync.store.views.search import search

Wanted = Annotated[
    str,
    Query(
        min_length=1,
        max_length=UNIT_NAME_LENGTH_MAX,
        description="A key, a change's id, an entity's id or type/id, a unit's name or its beginning, a property",
    ),
]


class SearchRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "search")
        add("GET", "/api/search", self.search, SearchHits, "Find by key, id, name or property", WATCHERS, (405, 422))

    async def search(self, q: Wanted) -> SearchHits:
        """Exact matches come first; at most ten results of each kind."""
        host, wanted = self._dependencies.host, q.strip()
        found = await self._dependencies.database.run(lambda connection: search(connection, host, wanted))
        return SearchHits(hits=[SearchHit(**asdict(hit)) for hit in found])
