"""The rules for turns: when age goes before turns, and when the properties of a lane take turns."""

from __future__ import annotations

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.writer_policy import OLDEST_FIRST_MS


def too_old_for_turns(txn_ms: int | None, lww_ms: int | None, now_ms: int) -> PriorityClass | None:
    """The class with the older head, if that is too old to wait for its turn. `txn_ms`, `lww_ms`: when each head began
    to wait; None: no head.
    """
    if txn_ms is None or lww_ms is None or now_ms - min(txn_ms, lww_ms) < OLDEST_FIRST_MS:
        return None
    return PriorityClass.TXN if txn_ms <= lww_ms else PriorityClass.LWW


def properties_take_turns(first_ms: int, waiting_ms: float, now_ms: int) -> bool:
    """Whether the properties of a lane may take turns: its oldest change, waiting from `first_ms` on, would not get too
    old even if it were sent last. `waiting_ms`: how long OldHost takes for all that waits.
    """
    return now_ms - first_ms + waiting_ms < OLDEST_FIRST_MS
