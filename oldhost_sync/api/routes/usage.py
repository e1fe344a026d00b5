"""What each token used: its requests and changes; tokens with refused requests come first."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import FastAPI, Query
from pydantic import Field

from oldhost_sync.api.access.auth import WATCHERS, adder
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.field_types import WHOLE
from oldhost_sync.api.usage_schemas import QuotasOfATokenAMinute, TokenUsed, UsageOfTokens
from oldhost_sync.store.token_usage import MINUTES_KEPT, usage_of_tokens

Minutes = Annotated[
    int, Field(ge=1, le=MINUTES_KEPT), WHOLE, Query(description="The number of minutes, including the present one")
]


class UsageRoutes:
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
        found = await self._dependencies.database.run(lambda connection: usage_of_tokens(connection, host, minutes))
        return UsageOfTokens(
            minutes=minutes,
            quotas=QuotasOfATokenAMinute(**asdict(self._dependencies.quotas.quotas)),
            tokens=[TokenUsed(token=each.token, **asdict(each.usage)) for each in found],
        )
