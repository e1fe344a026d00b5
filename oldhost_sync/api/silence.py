"""A timeout that counts only the time in which this process itself was running and could have received an answer.

When a process stands still (no CPU, a frozen machine, a long garbage collection) and continues, its timeouts have
passed and answers that arrived are still unread. That is not the fault of the server that was asked.
"""

from __future__ import annotations

import asyncio
from typing import Any

SLICE_SECONDS = 0.25


async def is_silent(future: asyncio.Future[Any], seconds: float) -> bool:
    """Whether the future has no result after `seconds`; a standstill here counts as at most SLICE_SECONDS."""
    left = seconds
    while left > 0 and not future.done():
        part = min(left, SLICE_SECONDS)
        await asyncio.wait({future}, timeout=part)
        left -= part
    return not future.done()
