"""The pages about rules, the audit, and the hosts that this process serves."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access import OPERATORS, WATCHERS, caller_of
from oldhost_sync.api.requests import BLANK_IS_NONE, RowId, read_number_cursor
from oldhost_sync.api.routes.hosts import HOSTS, list_of
from oldhost_sync.console.forms import RuleAct, read_act
from oldhost_sync.console.page import Adder, Console, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.audit import ACTION_LENGTH_MAX, list_acts
from oldhost_sync.store.intake.rules import decide_rule, default_class, rules_of

RULES = f"{PREFIX}/rules"


class RulesPage(Page):
    """Which class the changes of an event type have, and an operator's decision about one."""

    title = "Rules"
    path = RULES

    def mount(self, add: Adder) -> None:
        add("GET", RULES, self.show, WATCHERS)
        add("POST", f"{RULES}/set", self.set, OPERATORS)

    async def show(self, request: Request) -> Response:
        host = self.console.dependencies.host
        found = await self.console.dependencies.database.run(lambda connection: rules_of(connection, host))
        rules = [(event_type, cls.value, default_class(event_type).value) for event_type, cls in found.items()]
        return self.page(request, "rules.html", rules=rules, classes=[cls.value for cls in PriorityClass])

    async def set(self, request: Request) -> Response:
        """It applies to changes recorded from now on."""
        act = await read_act(request, RuleAct)
        operator, host = caller_of(request).operator, self.console.dependencies.host
        await self.console.dependencies.database.run(
            lambda connection: decide_rule(
                connection, host, act.event_type, act.priority_class, operator=operator, reason=act.reason
            )
        )
        notice = f"{act.event_type} is {act.priority_class.value} from the next change on."
        return self.console.layout.redirect(RULES, notice)


AUDIT = f"{PREFIX}/audit"
ACTS_SHOWN = 100
# Offered by the filter; acts of other kinds are listed, too.
ACTIONS = (
    "pause", "resume", "flush", "resolve", "halt", "retry", "discard", "confirm", "replace", "correct", "set-rule",
    "cancel-scheduled", "read-payload", "acknowledge-alert", "close-alert", "decode-payloads", "sign-in", "sign-out",
    "end-sign-ins",
)  # fmt: skip
Action = Annotated[str, Query(max_length=ACTION_LENGTH_MAX)]
Cursor = Annotated[str, Query(max_length=20)]
ChangeId = Annotated[RowId | None, BLANK_IS_NONE, Query()]


class AuditPage(Page):
    """Who did what and why, newest first."""

    title = "Audit"
    path = AUDIT

    def mount(self, add: Adder) -> None:
        add("GET", AUDIT, self.show, WATCHERS)

    async def show(
        self, request: Request, action: Action = "", change_id: ChangeId = None, cursor: Cursor = ""
    ) -> Response:
        before_id, host = read_number_cursor(cursor or None), self.console.dependencies.host
        found = await self.console.dependencies.database.run(
            lambda connection: list_acts(
                connection, host, limit=ACTS_SHOWN + 1, before_id=before_id, action=action or None, change_id=change_id
            )
        )
        acts = found[:ACTS_SHOWN]
        given = {"action": action, "change_id": "" if change_id is None else change_id}
        older = f"{AUDIT}?{urlencode(given | {'cursor': acts[-1].act_id})}" if len(found) > ACTS_SHOWN else None
        return self.page(request, "audit.html", acts=acts, given=given, older=older, actions=ACTIONS)


class HostsPage(Page):
    """All hosts with their states; each leads to its own console."""

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
