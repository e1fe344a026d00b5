"""The cause of an error: its text without the details that differ from one change to the next."""

from __future__ import annotations

import re

# Leaves room for the kind before it, in a key of 128 characters.
LENGTH_MAX = 96
NO_REASON = "(no reason)"

_VARIES = re.compile(
    r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|«[^»]*»"  # quoted text
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"  # UUIDs
    r"|\b0x[0-9a-fA-F]+\b|\d+(?:[.,:]\d+)*"  # numbers, times, amounts
)


def without_details(text: str | None) -> str:
    """`text` with # for each number, UUID and quoted name: changes refused for the same reason give the same text."""
    return _VARIES.sub("#", text) if text else NO_REASON


def cause_of(text: str | None) -> str:
    """The same, short enough for a key."""
    return " ".join(without_details(text).split())[:LENGTH_MAX].strip() or NO_REASON
