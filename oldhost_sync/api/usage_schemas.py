"""The answers about what tokens used."""

from __future__ import annotations

from pydantic import BaseModel, Field


class QuotasOfATokenAMinute(BaseModel):
    """What each token may use; 0: no limit."""

    requests: int
    changes: int
    emergencies: int


class TokenUsed(BaseModel):
    """What one token used."""

    token: str = Field(description="Its name", examples=["shop"])
    requests: int
    changes: int = Field(description="Accepted for checking; emergencies are among them")
    emergencies: int
    refused: int = Field(description="Requests that were answered 429")


class UsageOfTokens(BaseModel):
    """The noisiest first: who was refused most, then who sent most."""

    minutes: int
    quotas: QuotasOfATokenAMinute
    tokens: list[TokenUsed]
