"""JSON that a host wrote. A lax check would accept garbage as an answer, so each value is one of ours or None."""

from __future__ import annotations

import json
import math
from typing import Any

from oldhost_sync.drivers.events import NONCE_MAX, REASON_LENGTH_MAX, RETRY_AFTER_SECONDS_MAX

# A number that is out of range may have thousands of digits.
SAID_LENGTH_MAX = 40


def json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_whole(value: object) -> bool:
    """A whole number, and neither True nor 501.0."""
    return isinstance(value, int) and not isinstance(value, bool)


def number(value: object) -> int | None:
    """A number that the ledger can store and count from."""
    return value if isinstance(value, int) and is_whole(value) and 0 <= value <= NONCE_MAX else None


def seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return min(max(0, value), RETRY_AFTER_SECONDS_MAX) * 1.0


def reason(value: object) -> str:
    said = value if isinstance(value, str) else "no reason given"
    return "".join(mark if mark.isprintable() else " " for mark in said[:REASON_LENGTH_MAX])
