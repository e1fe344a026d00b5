"""W3C's `traceparent`: which span of which trace the caller is in. What is not of its form is as none, as the standard
says: a change is never refused for it.
"""

from __future__ import annotations

import re

from oldhost_sync.policy.limits import TRACEPARENT_LENGTH, TRACEPARENT_PATTERN

_FORM = re.compile(TRACEPARENT_PATTERN)


def read_traceparent(value: object) -> str | None:
    """In the form of version 00; a later version may have more, which is left out."""
    if not isinstance(value, str) or not _FORM.match(value):
        return None
    return f"00{value[2:TRACEPARENT_LENGTH]}"
