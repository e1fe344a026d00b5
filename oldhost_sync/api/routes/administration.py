"""The rules that decide a change's class, the audit, and what each token used."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, ClassVar

from fastapi import FastAPI, Path, Query, Request
from pydantic import Field

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import OPERATORS, WATCHERS, adder, caller_of
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.requests import (
    WHOLE,
    AnswerBody,
    Cursor,
    Limit,
    Name,
    ReasonedRequest,
    RowId,
    json_body,
    read_body,
    read_number_cursor,
)
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.access import MINUTES_KEPT, usage_of_tokens
from oldhost_sync.store.audit import ACTION_LENGTH_MAX, AuditEntry, list_acts
from oldhost_sync.store.intake.rules import decide_rule, default_class, rules_of

EventType = Annotated[Name, Path(examples=["rate_changed"])]


class Rule(AnswerBody):
    """The class that changes of an event type get when they are recorded."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"event_type": "rate_changed", "priority_class": "LWW", "default": "LWW"}

    event_type: str
    priority_class: PriorityClass
    default: PriorityClass = Field(description="Its class if no rule is set")


class Rules(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"rules": [Rule.EXAMPLE]}

    rules: list[Rule] = Field(description="Every other event type is TXN")


class NewRule(ReasonedRequest):
    """The class of an event type from now on."""

    priority_class: PriorityClass = Field(examples=["LWW"])


class RuleRoutes:
    """Rules are listed, and set: audited with operator and reason."""

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
        classes = await self._dependencies.database.run(lambda connection: rules_of(connection, host))
        return Rules(
            rules=[
                Rule(event_type=event_type, priority_class=cls, default=default_class(event_type))
                for event_type, cls in classes.items()
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


Action = Annotated[
    str | None, Query(min_length=1, max_length=ACTION_LENGTH_MAX, description="pause, resume, flush, retry, discard …")
]
ChangeId = Annotated[RowId | None, Query(description="Only actions on this change")]


class AuditPage(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"entries": [AuditEntry.EXAMPLE], "next_cursor": None}

    entries: list[AuditEntry]
    next_cursor: str | None


class AuditRoutes:
    """Who did what and why."""

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
        limit: Limit = http_limits.PAGE_DEFAULT,
    ) -> AuditPage:
        before_id, host = read_number_cursor(cursor), self._dependencies.host
        acts = await self._dependencies.database.run(
            lambda connection: list_acts(
                connection, host, limit=limit + 1, before_id=before_id, action=action, change_id=change_id
            )
        )
        page = acts[:limit]
        return AuditPage(entries=page, next_cursor=str(page[-1].act_id) if len(acts) > limit else None)


Minutes = Annotated[
    int, Field(ge=1, le=MINUTES_KEPT), WHOLE, Query(description="The number of minutes, including the present one")
]


class QuotasOfATokenAMinute(AnswerBody):
    """What each token may use per minute; 0: no limit."""

    requests: int
    changes: int
    emergencies: int


class TokenUsed(AnswerBody):
    """What one token used."""

    token: str = Field(description="The token's name", examples=["shop"])
    requests: int
    changes: int = Field(description="Changes that passed the quota, including emergencies")
    emergencies: int
    refused: int = Field(description="Requests that were answered 429")


class UsageOfTokens(AnswerBody):
    """Tokens by refused requests, the most first; then by what they sent."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "minutes": 10,
        "quotas": {"requests": 60000, "changes": 200000, "emergencies": 150},
        "tokens": [{"token": "shop", "requests": 640, "changes": 612, "emergencies": 150, "refused": 450}],
    }

    minutes: int
    quotas: QuotasOfATokenAMinute
    tokens: list[TokenUsed]


class UsageRoutes:
    """The requests and changes of each token; tokens with refused requests come first."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "usage")
        add(
            "GET",
            "/api/usage",
            self.list,
            UsageOfTokens,
            "What each token used, the most refused first",
            WATCHERS,
            (405, 422),
        )

    async def list(self, minutes: Minutes = 10) -> UsageOfTokens:
        """The sum over all API processes, up to one second old. Changes that bypass the API have no token."""
        host = self._dependencies.host
        rows = await self._dependencies.database.run(lambda connection: usage_of_tokens(connection, host, minutes))
        return UsageOfTokens(
            minutes=minutes,
            quotas=QuotasOfATokenAMinute(**asdict(self._dependencies.quotas.quotas)),
            tokens=[TokenUsed(token=row.token, **asdict(row.usage)) for row in rows],
        )
