"""The ids of a change's trace, derived from what names the change: its host, its id, and when it was accepted.

Every process derives the same ids and, from them, the same decision whether the change is traced at all. The time is
part of the name because a database that lost its last commits assigns ids again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_RANGE = 2**64


@dataclass(frozen=True, slots=True)
class ChangeTrace:
    """`trace_id`: 128 bits. `span_id`: 64 bits, of the span of the whole change, the parent of all others."""

    trace_id: int
    span_id: int

    @staticmethod
    def of(host: str, change_id: int, accepted_at_ms: int) -> ChangeTrace:
        digest = _digest(f"oldhost-sync {host} {change_id} {accepted_at_ms}")
        return ChangeTrace(int.from_bytes(digest[:16]), int.from_bytes(digest[16:24]))

    def is_sampled(self, ratio: float) -> bool:
        """Whether it is in this share of all changes, 0 to 1; a larger share contains every smaller one."""
        return self.trace_id % _RANGE < ratio * _RANGE

    def span_of(self, name: str, at: int = 0) -> int:
        """The id of a span, derived from its name and its start: reported twice, it is the same span."""
        return int.from_bytes(_digest(f"{self.trace_id:032x} {name} {at}")[:8])


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
