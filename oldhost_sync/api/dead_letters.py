"""Changes that OldHost rejected: see them, and decide whether they are tried again or given up."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Path, Request

from oldhost_sync.api import limits
from oldhost_sync.api.auth import OPERATORS, WATCHERS, adder, caller_of
from oldhost_sync.api.bodies import json_body, read_body
from oldhost_sync.api.dependencies import Parts
from oldhost_sync.api.keys import Cursor, Limit, read_number_cursor
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.schemas import Because, DeadLetter, DeadLetterPage, Done
from oldhost_sync.store.views import overview
from workflows.messages import OperatorRequest

ChangeId = Annotated[int, Path(ge=1, le=limits.INTEGER_MAX, description="The rejected change's id")]


class DeadLetterRoutes:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "dead letters")
        title = "Undecided dead letters, oldest first"
        add("GET", "/api/dead-letters", self.list, DeadLetterPage, title, WATCHERS, (405, 422))
        for action, handler, reason in (
            ("retry", self.retry, "The guest's record was corrected at OldHost"),
            ("discard", self.discard, "The booking no longer exists"),
        ):
            path, title = f"/api/dead-letters/{{change_id}}/{action}", f"{action.capitalize()} a rejected change"
            body = json_body(Because, example={"reason": reason})
            add("POST", path, handler, Done, title, OPERATORS, (404, 405, 409, 413, 415, 422), **body)

    async def list(self, cursor: Cursor = None, limit: Limit = limits.PAGE_DEFAULT) -> DeadLetterPage:
        after_id = read_number_cursor(cursor) or 0
        host = self._parts.host
        found = await self._parts.database.run(
            lambda connection: overview.list_dead_letters(connection, host, after_id=after_id, limit=limit + 1)
        )
        page = [DeadLetter(**letter) for letter in found[:limit]]
        return DeadLetterPage(dead_letters=page, next_cursor=str(page[-1].change_id) if len(found) > limit else None)

    async def retry(self, request: Request, change_id: ChangeId) -> Done:
        """It is sent again in its turn, and so are the changes held behind it."""
        return await self._act("retry", request, change_id)

    async def discard(self, request: Request, change_id: ChangeId) -> Done:
        """It is given up; the changes held behind it are sent in their turn."""
        return await self._act("discard", request, change_id)

    async def _act(self, action: str, request: Request, change_id: int) -> Done:
        body = await read_body(request, Because)
        host = self._parts.host
        exists, outcome = await self._parts.database.run(
            lambda connection: overview.find_outcome(connection, host, change_id)
        )
        if not exists:
            raise Problem(
                404,
                "unknown-change",
                "There is no such change",
                f"No change has the id {change_id}.",
                "GET /api/dead-letters lists those that can be decided on.",
            )
        if outcome != "DEAD":
            raise Problem(
                409,
                "no-dead-letter",
                "This change is no dead letter",
                f"Change {change_id} is {outcome or 'still on its way'}.",
                "GET /api/dead-letters lists those that can be decided on.",
            )
        operator = caller_of(request).name
        message = await self._parts.writer.update(
            action, OperatorRequest(operator=operator, reason=body.reason, change_id=change_id)
        )
        return Done(action=action, operator=operator, message=message)
