"""How many operations a send has. Each send costs Temporal the same, so more of them make an operation cheaper; but an
arriving TXN change waits for the sends in flight, and what is in a send can't coalesce.
"""

from __future__ import annotations

from oldhost_sync.policy.writer_policy import (
    DEBOUNCE_PER_LONG_SEND,
    DEBOUNCE_PER_SEND,
    LONG_SEND_FILL_MS,
    LONG_SEND_OPERATIONS,
    QUICK_SEND_FILL_MS,
    SEND_FILL_MS,
    SEND_OPERATIONS,
    SEND_OPERATIONS_MAX,
    SHORT_SEND_FILL_MS,
)


def send_size(service_ms: float, debounce_ms: int, *, calm: bool = False) -> int:
    """Operations, at least one. `service_ms`: OldHost's time for one; `calm`: no TXN change has arrived for a while."""
    quick_ms = max(SHORT_SEND_FILL_MS, min(QUICK_SEND_FILL_MS, debounce_ms // DEBOUNCE_PER_SEND))
    size = max(int(quick_ms / service_ms), min(SEND_OPERATIONS, int(SEND_FILL_MS / service_ms)))
    if calm:
        long_ms = min(LONG_SEND_FILL_MS, debounce_ms // DEBOUNCE_PER_LONG_SEND)
        size = max(size, min(LONG_SEND_OPERATIONS, int(long_ms / service_ms)))
    return max(1, min(SEND_OPERATIONS_MAX, size))
