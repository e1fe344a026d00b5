"""The cause of an error: its text without the details that differ from one change to the next."""

from __future__ import annotations

import re

# Leaves room for the kind before it, in a key of 128 characters.
LENGTH_MAX = 96
# Of the name of a group of dead letters: as much as people read.
REASON_LENGTH_MAX = 200
# Of a text, only so many times the length of its cause are looked at: what varies in it is longer than its #.
LOOKED_AT = 2
NO_REASON = "(no reason)"

_VARIES = re.compile(
    r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|«[^»]*»"  # quoted text
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"  # UUIDs
    r"|[0-9a-fA-F]{16,}"  # hashes and other keys
    r"|\b0x[0-9a-fA-F]+\b|\d+(?:[.,:]\d+)*"  # numbers, times, amounts
)
# An answer that is not the protocol's, as `Said` words it. Its body may say anything, a guest's name too.
_FOREIGN = re.compile(r"((?:unsure: )?(?:(?:status|code) [0-9]+|answer))[:,] ")


def cause_of(text: str | None, length: int = LENGTH_MAX) -> str:
    """`text` with # for each number, UUID, hash and quoted name: changes refused for the same reason give the same
    text. At most `length` characters; by default short enough for a key. Of an answer that is not the protocol's its
    kind.
    """
    if foreign := _FOREIGN.match(text or ""):
        return foreign[1]
    without_details = _VARIES.sub("#", (text or "")[: LOOKED_AT * length])
    return " ".join(without_details.split())[:length].strip() or NO_REASON
