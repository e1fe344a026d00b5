"""The answers about what tokens used."""

from __future__ import annotations

from pydantic import BaseModel, Field


class QuotasOfATokenAMinute(BaseModel):
    """What each token may use per minute; 0: no limit."""

    requests: int
    changes: int
    emergencies: int


class TokenUsed(BaseModel):
    """What one token used."""

    token: str = Field(description="The token's name", examples=["shop"])
    requests: int
    changes: int = Field(description="Changes that passed the quota, including emergencies")
    emergencies: int
    refused: int = Field(description="Requests that were answered 429")


class UsageOfTokens(BaseModel):
    """Tokens by refused requests, the most first; then by what they sent."""

    minutes: int
    quotas: QuotasOfATokenAMinute
    tokens: list[TokenUsed]
