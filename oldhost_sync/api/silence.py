"""Whether somebody was silent: only while this process itself could have heard an answer.

A process that stands still (no CPU, a frozen machine, a long garbage collection) finds its time limits over when it
goes on, and what came meanwhile unread. Whoever was asked is not to blame for that.
"""

from __future__ import annotations

import asyncio
from typing import Any

SLICE_SECONDS = 0.25


async def is_silent(future: asyncio.Future[Any], seconds: float) -> bool:
    """Whether the future has no result after `seconds`; a stand-still counts as SLICE_SECONDS at most."""
    left = seconds
    while left > 0 and not future.done():
        part = min(left, SLICE_SECONDS)
        await asyncio.wait({future}, timeout=part)
        left -= part
    return not future.done()
