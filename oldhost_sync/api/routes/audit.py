"""The audit: who did what and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import FastAPI, Query

from oldhost_sync.api import limits
from oldhost_sync.api.access.auth import WATCHERS, adder
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.field_types import RowId
from oldhost_sync.api.keys import Cursor, Limit, read_number_cursor
from oldhost_sync.api.schemas import AuditEntry, AuditPage
from oldhost_sync.store.audit import ACTION_LENGTH_MAX, list_acts

Action = Annotated[
    str | None, Query(min_length=1, max_length=ACTION_LENGTH_MAX, description="pause, resume, flush, retry, discard …")
]
ChangeId = Annotated[RowId | None, Query(description="Only actions on this change")]


class AuditRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "audit")
        summary = "Operators' actions, newest first: who, what and why"
        add("GET", "/api/audit", self.list, AuditPage, summary, WATCHERS, (405, 422))

    async def list(
        self,
        action: Action = None,
        change_id: ChangeId = None,
        cursor: Cursor = None,
        limit: Limit = limits.PAGE_DEFAULT,
    ) -> AuditPage:
        before_id, host = read_number_cursor(cursor), self._dependencies.host
        found = await self._dependencies.database.run(
            lambda connection: list_acts(
                connection, host, limit=limit + 1, before_id=before_id, action=action, change_id=change_id
            )
        )
        page = [AuditEntry(id=each.act_id, **asdict(each)) for each in found[:limit]]
        return AuditPage(entries=page, next_cursor=str(page[-1].id) if len(found) > limit else None)
