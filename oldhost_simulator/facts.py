"""What happened at OldHost, as values: the only thing that changes its state, is written down, and is read back.

An `Entry` is a line of the journal: an operation that was applied or rejected, a foreign write, a restored backup.
An `Incident` is what should not happen: a gap, a replay, a ban. Times are epoch seconds.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`expected_nonce` follows it. `applied_at` is None for `rejected`, and all but the nonce for `restored`."""

    outcome: Literal["applied", "rejected", "foreign", "restored"]
    nonce: int
    expected_nonce: int
    at: float
    body: dict[str, Any] | None = None
    raw_sha256: str | None = None
    received_at: float | None = None
    applied_at: float | None = None
    connection: int | None = None
    reason: str | None = None
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A `ban` has its end; `whole_seconds` says in which unit it is told to the client."""

    incident: Literal["gap", "replay", "ban", "unban"]
    at: float
    expected_nonce: int
    nonce: int | None = None
    connection: int | None = None
    until: float | None = None
    whole_seconds: bool = True


Fact = Entry | Incident


def fact_to_json(fact: Fact) -> dict[str, Any]:
    return {field.name: getattr(fact, field.name) for field in dataclasses.fields(fact)}


def fact_from_json(data: dict[str, Any]) -> Fact:
    """Raises TypeError or KeyError where `data` is no fact of this version."""
    return Incident(**data) if "incident" in data else Entry(**data)
