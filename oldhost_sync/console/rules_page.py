"""Rules: which class the changes of an event type have, and an operator's decision about one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.rights import OPERATORS, WATCHERS, caller_of
from oldhost_sync.api.requests import checked
from oldhost_sync.console.act_form import RuleAct
from oldhost_sync.console.forms import read_fields
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.intake.rules import decide_rule, default_class, rules_of

RULES = f"{PREFIX}/rules"


class RulesPage(Page):
    title = "Rules"
    path = RULES

    def mount(self, add: Adder) -> None:
        add("GET", RULES, self.show, WATCHERS)
        add("POST", f"{RULES}/set", self.set, OPERATORS)

    async def show(self, request: Request) -> Response:
        host = self.console.dependencies.host
        found = await self.console.dependencies.database.run(lambda connection: rules_of(connection, host))
        rules = [(event_type, each.value, default_class(event_type).value) for event_type, each in found.items()]
        return self.page(request, "rules.html", rules=rules, classes=[each.value for each in PriorityClass])

    async def set(self, request: Request) -> Response:
        """It applies to changes recorded from now on."""
        act = checked(await read_fields(request, *RuleAct.model_fields), RuleAct, "form")
        operator, host = caller_of(request).operator, self.console.dependencies.host
        await self.console.dependencies.database.run(
            lambda connection: decide_rule(
                connection, host, act.event_type, act.priority_class, operator=operator, reason=act.reason
            )
        )
        notice = f"{act.event_type} is {act.priority_class.value} from the next change on."
        return self.console.layout.redirect(RULES, notice)
