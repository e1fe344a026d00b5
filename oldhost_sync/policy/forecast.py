"""The forecast, and how runs of release 1 make it: when will the backlog be empty, and does that break a promise?

Runs from release 2 on make it by `outlook.py`. In those of release 1, drain time is backlog /
(service rate - arrival rate), not backlog / service rate. During a ban, nothing drains.
"""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.policy.writer_policy import CONSISTENCY_MS, EMERGENCY_MS


@dataclass(frozen=True, slots=True)
class Load:
    """Input of `forecast_of_release_1`: waiting operations (including `emergencies`), rates per second, ages and waits
    in ms.
    """

    operations: int
    emergencies: int
    arrivals_per_s: float
    service_ms: float
    oldest_age_ms: int
    blocked_ms: int = 0


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


def forecast_of_release_1(load: Load) -> Forecast:
    """In runs of release 1: predict the drain of a backlog under a steady load."""
    service_per_s = 1000.0 / max(load.service_ms, 0.1)
    spare_per_s = service_per_s - load.arrivals_per_s
    drain_ms: int | None = 0
    if load.operations:
        drain_ms = load.blocked_ms + round(1000 * load.operations / spare_per_s) if spare_per_s > 0 else None
    oldest_age_ms = None if drain_ms is None else max(load.oldest_age_ms, drain_ms)
    emergency_ms = load.blocked_ms + round(load.emergencies * load.service_ms)
    return Forecast(
        drain_ms=drain_ms,
        oldest_age_ms=oldest_age_ms,
        emergency_ms=emergency_ms,
        breaks_consistency=oldest_age_ms is None or oldest_age_ms > CONSISTENCY_MS,
        breaks_emergency=load.emergencies > 0 and emergency_ms > EMERGENCY_MS,
    )
