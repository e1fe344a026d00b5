"""The promise for emergencies, and incidents: one or more emergencies are late, until none has been late for a while.

An emergency is late after half of the promised time (a warning), and a breach after all of it. An incident counts each
once: those with a fate when that fate is read, those that still wait anew at each check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.policy.tuning import Promises

# Upper bounds of the histogram from accepted to applied, the same for all hosts.
APPLIED_BOUNDS_MS = (
    250,
    500,
    1000,
    2000,
    5000,
    10_000,
    15_000,
    30_000,
    60_000,
    300_000,
    900_000,
    3_600_000,
    14_400_000,
)
# In a burst, one is late, then none, then another: that is one incident and one alert.
CALM_MS = 30_000
# A clock is set once or twice by hand. A broken time service may set it again and again: then changes older than so
# many steps are corrected by these only.
STEPS_MAX = 20


@dataclass(frozen=True, slots=True)
class Late:
    """How many emergencies are late, how many of them breach the promise, and the longest wait of all."""

    warned: int = 0
    breached: int = 0
    worst_ms: int = 0

    @classmethod
    def of(cls, waits_ms: Sequence[int], promised: Promises) -> Late:
        late = [wait for wait in waits_ms if wait >= promised.warning_ms]
        return cls(len(late), sum(wait >= promised.emergency_ms for wait in late), max(late, default=0))

    def __add__(self, other: Late) -> Late:
        return Late(self.warned + other.warned, self.breached + other.breached, max(self.worst_ms, other.worst_ms))


@dataclass(frozen=True, slots=True)
class Incident:
    """`ended`: late emergencies with a fate. `waiting`: those without, at the last check. `cause`: the last known."""

    ended: Late = Late()
    waiting: Late = Late()
    cause: str = ""

    @property
    def total(self) -> Late:
        return self.ended + self.waiting

    def looked(self, ended: Late, waiting: Late, cause: str) -> Incident:
        """The incident after one more check. The longest wait so far remains, even if that emergency has ended."""
        kept = replace(self.ended, worst_ms=max(self.ended.worst_ms, self.waiting.worst_ms))
        return Incident(kept + ended, waiting, cause if waiting.warned or not self.cause else self.cause)


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The database's clock was changed by `ms`; changes with an id up to `last_id` were accepted before that."""

    last_id: int
    ms: int


@dataclass(frozen=True, slots=True)
class ClockSteps:
    """The last steps of the database's clock, oldest first. A change's times are corrected by those after it."""

    steps: tuple[ClockStep, ...] = ()

    def stepped(self, last_id: int, ms: int) -> ClockSteps:
        """These and one more step, of which at most STEPS_MAX are kept."""
        return ClockSteps((*self.steps, ClockStep(last_id, ms))[-STEPS_MAX:])

    def wait_ms(self, change_id: int, measured_ms: int) -> int:
        """How long a change that still waits has waited."""
        return max(0, measured_ms - self._sums_ms(change_id)[-1])

    def took_ms(self, change_id: int, measured_ms: int) -> int:
        """How long an ended change took. It may have ended before, between or after the steps: the shortest possible
        time.
        """
        possible = (measured_ms - each for each in self._sums_ms(change_id))
        return min((each for each in possible if each >= 0), default=0)

    def _sums_ms(self, change_id: int) -> list[int]:
        """By how much the clock had been changed since the change was accepted: at first, and after each step."""
        return list(accumulate((step.ms for step in self.steps if change_id <= step.last_id), initial=0))


def describe(incident: Incident, promised: Promises) -> tuple[Literal["warning", "critical"], str]:
    """The severity and the message."""
    total, waiting = incident.total, incident.waiting
    late, than = (
        (total.breached, f"the promised {promised.emergency}")
        if total.breached
        else (total.warned, f"{promised.warning_ms / 1000:g} s")
    )
    waited = f"{quantity(late, 'emergency', 'emergencies')} waited longer than {than}"
    still = f"{waiting.warned} still wait{'s' * (waiting.warned == 1)}" if waiting.warned else "none waits any more"
    words = f"{waited} (the longest {total.worst_ms / 1000:.0f} s); {still}. Cause: {incident.cause.rstrip('.')}."
    return "critical" if total.breached else "warning", words
