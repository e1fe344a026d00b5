"""The machine's counters since its first start."""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.policy.changes import Outcome


@dataclass
class Counters:
    """Carried from run to run."""

    received: int = 0
    applied: int = 0
    superseded: int = 0
    no_op: int = 0
    stale: int = 0
    dead: int = 0
    sessions: int = 0
    bans: int = 0

    def count(self, outcome: Outcome) -> None:
        name = outcome.value.lower()
        if hasattr(self, name):
            setattr(self, name, getattr(self, name) + 1)
