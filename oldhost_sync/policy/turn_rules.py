"""Whose turn it is, as each release of the decisions has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from oldhost_sync.policy.release import CHARGES_INHERITED, FIRST_CHANGED_FIRST, OLDEST_FIRST
from oldhost_sync.policy.writer_policy import OLDEST_FIRST_MS


@dataclass(frozen=True, slots=True)
class TurnRules:
    """`by_first_change`: the LWW lane is in the order of the keys' first changes, else by when they fall due.
    `charges_inherited`: an LWW change that goes in TXN's turn, because a TXN of its entity waits behind it, is LWW's.
    `oldest_first_ms`: once the head of TXN or of LWW is so old, the older of the two goes; None: always by turns.
    """

    by_first_change: bool = True
    charges_inherited: bool = True
    oldest_first_ms: int | None = OLDEST_FIRST_MS

    @classmethod
    def of(cls, release: int) -> Self:
        return cls(
            by_first_change=release >= FIRST_CHANGED_FIRST,
            charges_inherited=release >= CHARGES_INHERITED,
            oldest_first_ms=OLDEST_FIRST_MS if release >= OLDEST_FIRST else None,
        )
