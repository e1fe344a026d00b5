"""The rules for turns in each release: the order of the LWW lane, when age goes before turns, and who takes turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.release import BY_PROPERTY, CHARGES_INHERITED, FIRST_CHANGED_FIRST, OLDEST_FIRST
from oldhost_sync.policy.writer_policy import OLDEST_FIRST_MS


@dataclass(frozen=True, slots=True)
class TurnRules:
    """`by_first_change`: the LWW lane is in the order of the keys' first changes, otherwise of their due times.
    `charges_inherited`: an LWW change sent in TXN's turn, because a TXN of its entity waits behind it, counts as LWW's.
    `oldest_first_ms`: once the head of TXN or LWW has this age, the older of the two is sent; None: always by turns.
    `by_property`: within these lanes, properties take turns.
    """

    by_first_change: bool = True
    charges_inherited: bool = True
    oldest_first_ms: int | None = OLDEST_FIRST_MS
    by_property: bool = True

    def oldest(self, txn_ms: int | None, lww_ms: int | None, now_ms: int) -> PriorityClass | None:
        """The class with the older head, if that is too old to wait for its turn. `txn_ms`, `lww_ms`: when each head
        began to wait; None: no head.
        """
        if txn_ms is None or lww_ms is None or self.oldest_first_ms is None:
            return None
        if now_ms - min(txn_ms, lww_ms) < self.oldest_first_ms:
            return None
        return PriorityClass.TXN if txn_ms <= lww_ms else PriorityClass.LWW

    def takes_turns(self, first_ms: int, waiting_ms: float, now_ms: int) -> bool:
        """Whether the properties of a lane may take turns: its oldest change, waiting from `first_ms` on, would not
        get too old even if it were sent last. `waiting_ms`: how long OldHost takes for all that waits.
        """
        return self.oldest_first_ms is None or now_ms - first_ms + waiting_ms < self.oldest_first_ms

    @classmethod
    def of(cls, release: int) -> Self:
        return cls(
            by_first_change=release >= FIRST_CHANGED_FIRST,
            charges_inherited=release >= CHARGES_INHERITED,
            oldest_first_ms=OLDEST_FIRST_MS if release >= OLDEST_FIRST else None,
            by_property=release >= BY_PROPERTY,
        )
