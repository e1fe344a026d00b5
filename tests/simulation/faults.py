"""Where a call may fail, and how. Every IO of the product passes `at`, which says what becomes of it.

Modes: "" nothing · "before" its effect (it never happened) · "after" its effect (the reply is lost) · "hang" (no reply
until somebody's deadline) · "die" (the process ends here) · what only some kinds know: "deadlock", "part" (some bytes,
then the rest), "locked" (somebody else holds the row), "part-die", "die-after" (after the effect), "freeze" (the
process is stopped right here).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tests.simulation.hub import Process

MODES: Mapping[str, tuple[str, ...]] = {
    "statement": ("before", "after", "hang", "die", "deadlock"),
    "row": ("locked",),
    "commit": ("before", "after", "hang", "die", "die-after"),
    "connect": ("before", "after", "hang", "die"),
    "write": ("before", "after", "hang", "die", "part", "part-die", "freeze"),
    "read": ("before", "after", "hang", "die"),
    "activity": ("hang",),
    "result": ("before", "after", "hang", "die"),
    "signal": ("before", "after", "hang", "die"),
}


class Faults(Protocol):
    def at(self, kind: str, process: Process, detail: str = "") -> str: ...


class NoFaults:
    on = False

    def at(self, kind: str, process: Process, detail: str = "") -> str:
        return ""


@dataclass
class RandomFaults:
    """Each seed has its own rates, most of them zero: a run with few kinds of faults reaches deeper into each."""

    random: Random
    rates: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    on: bool = True

    def __post_init__(self) -> None:
        rates = {"statement": 0.003, "commit": 0.02, "connect": 0.1, "write": 0.05, "read": 0.05, "activity": 0.01}
        rates |= {"result": 0.02, "signal": 0.05, "row": 0.2}
        for kind in MODES:
            if self.random.random() < 0.5:
                self.rates[kind] = rates[kind] * self.random.choice((0.3, 1, 1, 3))

    def at(self, kind: str, process: Process, detail: str = "") -> str:
        rate = self.rates.get(kind)
        if rate is None or not self.on or self.random.random() >= rate:
            return ""
        mode = self.random.choice(MODES[kind])
        if mode.startswith(("die", "part-die")) and not process.mortal:
            mode = "before"
        self.counts[f"{kind}: {mode}"] = self.counts.get(f"{kind}: {mode}", 0) + 1
        return mode
