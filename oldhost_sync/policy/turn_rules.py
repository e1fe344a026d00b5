"""Whose turn it is, as each release of the decisions has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from oldhost_sync.policy.release import FIRST_CHANGED_FIRST


@dataclass(frozen=True, slots=True)
class TurnRules:
    """`by_first_change`: the LWW lane is in the order of the keys' first changes, else by when they fall due."""

    by_first_change: bool = True

    @classmethod
    def of(cls, release: int) -> Self:
        return cls(by_first_change=release >= FIRST_CHANGED_FIRST)
