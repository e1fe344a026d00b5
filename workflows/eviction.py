"""Eviction: a run's memory is freed when the worker evicts it from its cache, which cancels all its tasks.

An ended run is full of reference cycles, the SDK's own among them. Only the garbage collector frees these, and it
seldom looks at objects that have lived for long: with 50,000 waiting keys four runs of 65 MiB each were kept.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy.coalescer import Coalescer


def free_at_eviction(coalescer: Coalescer) -> asyncio.Task[None]:
    """A task that runs as long as the run is cached. Its end empties the coalescer, which is most of what a run holds.

    In a callback: the loop also calls it for a task that was cancelled before it began (the run's first workflow task
    failed), and the garbage collector, which ends the tasks of a run that nobody evicts (a simulation's), does not.
    """
    task = asyncio.create_task(_until_evicted())
    task.add_done_callback(lambda _: _empty(coalescer))
    return task


async def _until_evicted() -> None:
    await asyncio.get_running_loop().create_future()


def _empty(coalescer: Coalescer) -> None:
    for part in (*coalescer.lanes.values(), coalescer):
        vars(part).clear()
