"""The rules that decide a change's class: listing them, and setting them (audited with operator and reason)."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Path, Request

from oldhost_sync.api.access.auth import OPERATORS, WATCHERS, adder, caller_of
from oldhost_sync.api.bodies import json_body, read_body
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.field_types import Name
from oldhost_sync.api.view_schemas import NewRule, Rule, Rules
from oldhost_sync.store.intake.rules import decide_rule, default_class, rules_of

EventType = Annotated[Name, Path(examples=["rate_changed"])]


class RuleRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "rules")
        add("GET", "/api/rules", self.list, Rules, "The class of each event type", WATCHERS, (405,))
        body = json_body(NewRule, example={"reason": "Rates are sent whole now", "priority_class": "LWW"})
        summary = "Set the class of an event type"
        add("PUT", "/api/rules/{event_type}", self.put, Rule, summary, OPERATORS, (404, 405, 413, 415, 422), **body)

    async def list(self) -> Rules:
        """The rules in force; an event type without a rule is TXN."""
        host = self._dependencies.host
        found = await self._dependencies.database.run(lambda connection: rules_of(connection, host))
        return Rules(
            rules=[
                Rule(event_type=event_type, priority_class=each, default=default_class(event_type))
                for event_type, each in found.items()
            ]
        )

    async def put(self, request: Request, event_type: EventType) -> Rule:
        """Applies to changes that are recorded from now on. Use LWW only if each payload holds the complete state of
        its key, because newer changes replace older ones.
        """
        body = await read_body(request, NewRule)
        host, operator = self._dependencies.host, caller_of(request).operator
        await self._dependencies.database.run(
            lambda connection: decide_rule(
                connection, host, event_type, body.priority_class, operator=operator, reason=body.reason
            )
        )
        return Rule(event_type=event_type, priority_class=body.priority_class, default=default_class(event_type))
