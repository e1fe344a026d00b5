"""What happened at OldHost, as values: only these change its state, are written to the state file and read back.

An `Entry` is a line of the journal: an operation that was applied or rejected, a foreign write, a restored backup.
An `Incident` is what should not happen: a gap, a replay, a ban. Times are epoch seconds.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`expected_nonce`: the one after it. `rejected` has no `applied_at`; `restored` has only nonces and a time."""

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
    """A `ban` has its end; `whole_seconds`: whether the client gets it in whole seconds or in milliseconds."""

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
    """Raises TypeError or KeyError if `data` is not a fact of this version."""
    return Incident(**data) if "incident" in data else Entry(**data)
