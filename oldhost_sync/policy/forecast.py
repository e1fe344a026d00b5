"""The forecast: when will the backlog be empty, and does that break a promise? `outlook.py` makes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Forecast:
    """`drain_ms` None: never, at this rate. `oldest_age_ms`: the oldest age that a change will have when it is sent.

    For display only, nothing is decided by it: `late_emergencies`, how many of the waiting `emergencies`, in flight or
    not, will be older than promised when OldHost has them.
    """

    drain_ms: int | None
    oldest_age_ms: int | None
    emergency_ms: int
    breaks_consistency: bool
    breaks_emergency: bool
    emergencies: int = 0
    late_emergencies: int = 0
