"""The cause that an error's text tells of: without what differs from one change to the next."""

from __future__ import annotations

import re

# Room for the kind before it, in a key of 128 characters.
LENGTH_MAX = 96

_VARIES = re.compile(
    r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|«[^»]*»"  # what is quoted
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"  # UUIDs
    r"|\b0x[0-9a-fA-F]+\b|\d+(?:[.,:]\d+)*"  # numbers, times, amounts
)


def cause_of(text: str | None) -> str:
    """Two texts that differ only in numbers, quoted names or UUIDs have the same cause; `…` stands for these."""
    shown = " ".join(_VARIES.sub("…", text or "").split())
    return shown[:LENGTH_MAX].strip() or "no reason given"
