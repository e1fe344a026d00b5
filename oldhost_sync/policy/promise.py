"""The promise to emergencies, and what an incident is: one or more of them late, from the first until none has been for
a while.

An emergency is late from half of the promise on (people are warned), and a breach at the promise. An incident counts
each once: those that have ended, as their fates are read, and those that still wait, anew at each look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from oldhost_sync.policy.phrases import quantity
from oldhost_sync.policy.writer_policy import EMERGENCY_MS

EMERGENCY_WARNING_MS = EMERGENCY_MS // 2
# Upper bounds of the histogram from accepted to applied.
APPLIED_BOUNDS_MS = (
    250,
    500,
    1000,
    2000,
    5000,
    10_000,
    EMERGENCY_WARNING_MS,
    EMERGENCY_MS,
    60_000,
    300_000,
    900_000,
    3_600_000,
    14_400_000,
)
# In a burst one is late, then none, then one again: that is one incident, and one alert.
CALM_MS = 30_000


@dataclass(frozen=True, slots=True)
class Late:
    """How many emergencies are late, how many of these too late, and the longest wait of all."""

    warned: int = 0
    breached: int = 0
    worst_ms: int = 0

    @classmethod
    def of(cls, waits_ms: Sequence[int]) -> Late:
        late = [wait for wait in waits_ms if wait >= EMERGENCY_WARNING_MS]
        return cls(len(late), sum(wait >= EMERGENCY_MS for wait in late), max(late, default=0))

    def __add__(self, other: Late) -> Late:
        return Late(self.warned + other.warned, self.breached + other.breached, max(self.worst_ms, other.worst_ms))


@dataclass(frozen=True, slots=True)
class Incident:
    """`ended`: those with a fate. `waiting`: those without, as of the last look. `cause`: the last known."""

    ended: Late = Late()
    waiting: Late = Late()
    cause: str = ""

    @property
    def total(self) -> Late:
        return self.ended + self.waiting

    def looked(self, ended: Late, waiting: Late, cause: str) -> Incident:
        """After one more look. The wait of one that waited and has ended since stays the worst, if it was."""
        kept = replace(self.ended, worst_ms=max(self.ended.worst_ms, self.waiting.worst_ms))
        return Incident(kept + ended, waiting, cause if waiting.warned or not self.cause else self.cause)


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The database's clock was set by `ms`; changes with an id up to `last_id` were accepted before."""

    last_id: int = 0
    ms: int = 0

    def wait_ms(self, change_id: int, measured_ms: int) -> int:
        """How long a change has waited that still waits."""
        return max(0, measured_ms - self.ms if change_id <= self.last_id else measured_ms)

    def took_ms(self, change_id: int, measured_ms: int) -> int:
        """How long a change took that has ended, before the step or after: what is possible, and the shorter of two."""
        if change_id > self.last_id:
            return max(0, measured_ms)
        return min((each for each in (measured_ms, measured_ms - self.ms) if each >= 0), default=0)


def describe(incident: Incident) -> tuple[str, str]:
    """Severity and words for people."""
    total, waiting = incident.total, incident.waiting
    late, than = (
        (total.breached, f"the promised {EMERGENCY_MS // 1000} s")
        if total.breached
        else (total.warned, f"{EMERGENCY_WARNING_MS // 1000} s")
    )
    waited = f"{quantity(late, 'emergency', 'emergencies')} waited longer than {than}"
    still = f"{waiting.warned} still wait{'s' * (waiting.warned == 1)}" if waiting.warned else "none waits any more"
    words = f"{waited} (the longest {total.worst_ms / 1000:.0f} s); {still}. Cause: {incident.cause.rstrip('.')}."
    return "critical" if total.breached else "warning", words
