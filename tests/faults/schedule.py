"""What goes wrong in a soak, and when: decided by a seed before anything runs, so that a seed names one schedule.

Each fault is one that the product promises to survive; spans stay within what the settle time is made for (a late apply
comes at most 1.5 s late), while whole processes stop for shorter and for longer than it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PROCESSES = ("worker-1", "worker-2", "relay-1", "relay-2", "api", "simulator", "mariadb", "temporal")
# Servers take the machine's time when they start again: seldomer than the roles.
WEIGHTS = (5, 5, 2, 2, 2, 3, 2, 1)
LATE_APPLY_MS_MAX = 1500
PAUSE_SECONDS = (1.5, 6.5)


@dataclass(frozen=True, slots=True)
class Mishap:
    """One fault. `kind`: kill, stop, leave (SIGTERM), host (at OldHost), hang-up, renew or terminate (the workflow)."""

    at_s: float
    kind: str
    target: str
    seconds: float = 0.0
    parameters: dict[str, Any] = field(default_factory=dict)

    def told(self) -> str:
        span = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.kind} {self.target}{span} {self.parameters or ''}".strip()

    @property
    def sort(self) -> str:
        """What it counts as in the table."""
        return f"{self.kind} {self.target}" if self.kind in {"host", "renew", "terminate"} else self.kind


def plan(seed: int, seconds: float, settle_seconds: float) -> list[Mishap]:
    """Mishaps from the start until `seconds`, in order of time."""
    chance = random.Random(seed)
    mishaps: list[Mishap] = []
    at_s = 2.0
    while at_s < seconds:
        mishaps.append(_draw(chance, at_s, settle_seconds))
        if chance.random() < 0.15:  # a second one in the first one's recovery
            mishaps.append(_draw(chance, at_s + chance.uniform(0, 1), settle_seconds))
        at_s += chance.uniform(*PAUSE_SECONDS)
    return sorted(mishaps, key=lambda mishap: mishap.at_s)


def _draw(chance: random.Random, at_s: float, settle_seconds: float) -> Mishap:
    kinds: tuple[tuple[int, Callable[[], Mishap]], ...] = (
        (5, lambda: Mishap(at_s, "kill", _process(chance), round(chance.uniform(0, 2), 1))),
        (2, lambda: Mishap(at_s, "stop", _process(chance), round(chance.uniform(0.2, 2), 1))),
        (2, lambda: Mishap(at_s, "stop", _process(chance), round(settle_seconds + chance.uniform(0.5, 4), 1))),
        (1, lambda: Mishap(at_s, "leave", chance.choice(PROCESSES[:5]), round(chance.uniform(0, 2), 1))),
        (9, lambda: Mishap(at_s, "host", *_host_fault(chance))),
        (1, lambda: Mishap(at_s, "hang-up", "simulator")),
        (1, lambda: Mishap(at_s, "renew", "workflow")),
        (1, lambda: Mishap(at_s, "terminate", "workflow")),
    )
    draw = chance.choices([make for _, make in kinds], [weight for weight, _ in kinds])[0]
    return draw()


def _process(chance: random.Random) -> str:
    return chance.choices(PROCESSES, WEIGHTS)[0]


def _host_fault(chance: random.Random) -> tuple[str, float, dict[str, Any]]:
    name = chance.choice(
        (
            "drop_before",
            "drop_after",
            "apply_late",
            "cut_reply",
            "garbage",
            "hang",
            "busy",
            "refuse",
            "slow",
            "idle_close",
        )
    )
    parameters: dict[str, Any] = {"next": chance.randint(1, 3), "on": chance.choice(("sync", "sync", "any"))}
    match name:
        case "drop_before" | "drop_after":
            parameters["reset"] = chance.random() < 0.5
        case "apply_late":
            parameters["delay_ms"] = chance.randint(50, LATE_APPLY_MS_MAX)
        case "garbage":
            parameters["reply"] = chance.choice(("bytes", "not_json", "status", "other_nonce"))
            parameters["applied"] = chance.random() < 0.5
        case "hang":
            parameters |= {"seconds": round(chance.uniform(0.3, 2), 1), "applied": chance.random() < 0.5}
        case "busy":
            parameters |= {"next": chance.randint(1, 8), "retry_after": round(chance.uniform(0.05, 0.5), 2)}
        case "slow":
            parameters["extra_ms"] = chance.randint(100, 1200)
        case "idle_close":
            parameters["after_ms"] = chance.randint(50, 500)
    return name, 0.0, parameters
