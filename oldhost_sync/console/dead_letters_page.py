"""Dead letters by OldHost's reason, and the decisions: on one, on the marked ones, or on a whole group."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import OPERATORS, WATCHERS, caller_of, seen_by
from oldhost_sync.api.problems import field_invalid
from oldhost_sync.api.requests import checked, read_number_cursor
from oldhost_sync.api.routes.dead_letters import Decisions, decide_group, decide_letters
from oldhost_sync.console.forms import GroupAct, MarkedAct, read_act, read_form
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
from oldhost_sync.store.read.dead_letters import HELD_COUNTED_MAX, dead_letters_of, ids_of_group, list_groups

DEAD_LETTERS = f"{PREFIX}/dead-letters"
GROUP = f"{DEAD_LETTERS}/group"
Reason = Annotated[str, Query(max_length=TEXT_LENGTH_MAX)]
Cursor = Annotated[str | None, Query(max_length=20)]


class DeadLettersPage(Page):
    title = "Dead letters"
    path = DEAD_LETTERS

    def mount(self, add: Adder) -> None:
        add("GET", DEAD_LETTERS, self.groups, WATCHERS)
        add("GET", GROUP, self.group, WATCHERS)
        for action, marked, whole in (
            ("retry", self.retry_marked, self.retry_group),
            ("discard", self.discard_marked, self.discard_group),
        ):
            add("POST", f"{DEAD_LETTERS}/{action}", marked, OPERATORS)
            add("POST", f"{GROUP}/{action}", whole, OPERATORS)

    async def groups(self, request: Request) -> Response:
        host = self.console.dependencies.host
        found = await self.console.dependencies.database.run(lambda connection: list_groups(connection, host))
        found = seen_by(caller_of(request), found)
        groups = [(letters, _address(letters.reason)) for letters in found.groups]
        return self.page(
            request, "dead_letters.html", groups=groups, found=found, at_once=http_limits.LETTERS_AT_ONCE_MAX
        )

    async def group(self, request: Request, reason: Reason = "", cursor: Cursor = None) -> Response:
        """The dead letters with one reason, at most as many as one decision may cover."""
        after_id, host, some = (
            read_number_cursor(cursor) or 0,
            self.console.dependencies.host,
            http_limits.LETTERS_AT_ONCE_MAX,
        )
        read = await self.console.dependencies.database.run(
            lambda connection: dead_letters_of(
                connection, host, ids_of_group(connection, host, reason, after_id=after_id, limit=some + 1)
            )
        )
        letters = read[:some]
        more = _address(reason, letters[-1]["change_id"]) if len(read) > some else None
        return self.page(
            request,
            "dead_letter_group.html",
            title=f"Dead letters: {reason}",
            reason=reason,
            letters=seen_by(caller_of(request), letters),
            held_max=HELD_COUNTED_MAX,
            more=more,
        )

    async def retry_marked(self, request: Request) -> Response:
        return await self._decide_marked(request, "retry")

    async def discard_marked(self, request: Request) -> Response:
        return await self._decide_marked(request, "discard")

    async def retry_group(self, request: Request) -> Response:
        return await self._decide_group(request, "retry")

    async def discard_group(self, request: Request) -> Response:
        return await self._decide_group(request, "discard")

    async def _decide_marked(self, request: Request, action: str) -> Response:
        fields = await read_form(request)
        marked = [value for name, value in fields if name == "change_id"]
        others = {name: value.strip() for name, value in fields if name != "change_id"}
        group = others.pop("group", "")
        if not marked:
            raise field_invalid("form.change_id", "mark at least one letter")
        letters = checked({"change_ids": marked, **others}, MarkedAct, "form")
        done = await decide_letters(
            self.console.dependencies,
            caller_of(request).operator,
            action,
            change_ids=letters.change_ids,
            reason=letters.reason,
        )
        return self.console.layout.redirect(_address(group) if group else DEAD_LETTERS, _result(action, done))

    async def _decide_group(self, request: Request, action: str) -> Response:
        act = await read_act(request, GroupAct)
        done = await decide_group(
            self.console.dependencies,
            caller_of(request).operator,
            action,
            group=act.group,
            up_to=act.up_to,
            reason=act.reason,
        )
        return self.console.layout.redirect(DEAD_LETTERS, _result(action, done))


def _address(reason: str, after_id: int | None = None) -> str:
    return f"{GROUP}?{urlencode({'reason': reason} | ({} if after_id is None else {'cursor': after_id}))}"


def _result(action: str, done: Decisions) -> str:
    """The result in one line."""
    decided = sum(decision.done for decision in done.decisions)
    parts = [f"{action}: {decided} decided"]
    parts += [f"change {decision.change_id}: {decision.message}" for decision in done.decisions if not decision.done][
        :5
    ]
    if done.left:
        parts.append("more are left: repeat it" + (f" ({done.stopped})" if done.stopped else ""))
    return "; ".join(parts)
