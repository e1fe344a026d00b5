"""Eviction: a run's memory is freed when the worker evicts it from its cache, which cancels all its tasks.

An ended run is full of reference cycles, the SDK's own among them. Only the garbage collector frees these, and it
seldom looks at objects that have lived for long: with 50,000 waiting keys four runs of 65 MiB each were kept.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy.coalescer import Coalescer


async def free_at_eviction(coalescer: Coalescer) -> None:
    """Runs as long as the run is cached, then empties the coalescer, which is most of what a run holds."""
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        for part in (*coalescer.lanes.values(), coalescer):
            vars(part).clear()
