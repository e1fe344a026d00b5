"""How one run is drawn from its seed, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random


@dataclass
class Shape:
    """How one run is: drawn from the seed, or laid down by a test."""

    changes: int = 40
    minutes: float = 5.0
    entities: int = 4
    debounce_s: float = 5.0
    ban_s: float = 60.0
    latency_ms: float = 200.0
    events_suggested: int = 400
    pause_s: float = 15.0
    meddle: bool = False
    eagerness: float = 0.4
    first_nonce: int = 1
    workers: int = 2
    relays: int = 2

    @staticmethod
    def drawn(random: Random) -> Shape:
        return Shape(
            changes=random.choice((15, 25, 40, 60)),
            minutes=random.choice((1, 3, 6, 12)),
            entities=random.choice((1, 2, 4, 8)),
            debounce_s=random.choice((2.0, 5.0, 20.0, 120.0)),
            ban_s=random.choice((20.0, 60.0, 900.0)),
            latency_ms=random.choice((50, 200, 400)),
            events_suggested=random.choice((100, 250, 1000)),
            pause_s=random.choice((5, 12, 30)),
            meddle=random.random() < 0.06,
            eagerness=random.choice((0.0, 0.3, 0.8)),
            first_nonce=random.choice((1, 1, 501)),
        )


@dataclass
class Verdict:
    """What one run came to."""

    seed: int
    violations: list[str]
    sometimes: dict[str, int]
    digest: str
    virtual_s: float
    operations: int
    changes: int
    faults: dict[str, int] = field(default_factory=dict)
    recovery_s: float = 0.0
    healed: bool = True
