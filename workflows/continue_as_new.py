"""The end of a run: when it continues as new, and how its memory is freed. The next run takes over what still waits."""

from __future__ import annotations

import asyncio

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy.queue.coalescer import Coalescer

# A large rebuild alone can make Temporal suggest a new run (4 MiB of pages; 150,000 changes with UUIDs as ids). A new
# run would rebuild again whatever the snapshot can't hold, and nothing would ever be sent. So such a run first works
# through this many events more, far below Temporal's limits (51,200 events, 50 MiB).
EVENTS_AFTER_REBUILD = 4_000
# A run also does not continue as new while the rebuild is in progress, unless that has taken this many events.
EVENTS_OF_REBUILD_MAX = 20_000
# Temporal ends a run at 50 MiB, with all signals that it has not read. Only submitted changes can bring a run there:
# each is in its history twice, as the signal and as the input of the activity that records it.
HISTORY_BYTES_MAX = 8 * 1024 * 1024
# Temporal refuses a run's signal 10,001, the relay's too.
SIGNALS_MAX = 5_000
# Before a new run, activities that talk to OldHost end. Database activities that take longer than this are left to the
# next run, which repeats them: another transaction may hold a row or table lock indefinitely.
DRAIN_MS = 2_000


class NextRun:
    """`asked`: the next run has new settings or a new release. `leaving`: database activities are not waited for."""

    def __init__(self) -> None:
        self.asked = False
        self.leaving = False
        self.leave_at_ms: int | None = None
        self._decided_again = False
        self._not_before_event = 0
        self._bytes_of_rebuild = 0

    def rebuilt(self, events: int, *, suggested: bool, history_bytes: int = 0) -> None:
        """The outstanding changes were read from MariaDB; the history has `events` events so far."""
        self._bytes_of_rebuild = history_bytes
        if suggested:
            self._not_before_event = events + EVENTS_AFTER_REBUILD

    def is_due(self, events: int, *, suggested: bool, history_bytes: int = 0, signals: int = 0) -> bool:
        """`events`, `history_bytes` and `signals` of the run so far."""
        too_large = history_bytes >= self._bytes_of_rebuild + HISTORY_BYTES_MAX or signals >= SIGNALS_MAX
        return self.asked or too_large or (suggested and events >= self._not_before_event)

    def drain(self, *, due: bool, now_ms: int, at_once: bool = False) -> bool:
        """Whether to end this run; starts the time for database activities. `at_once`: they get none."""
        if not due:
            self.leave_at_ms, self._decided_again = None, False
        elif self.leave_at_ms is None:
            self.leave_at_ms = now_ms + (0 if at_once else DRAIN_MS)
        return due

    def leave(self, now_ms: int, *, decides_again: bool) -> bool:
        """Whether database activities have had their time. `decides_again`: whether to decide in the next task.

        The task that finds it over may bring results, too, and the SDK applies signals and updates first. The time may
        have passed between two tasks: if Temporal refuses the end of a run since a signal has just come, the run is
        replayed, for a second or two.
        """
        is_over = self.leave_at_ms is not None and now_ms >= self.leave_at_ms
        if is_over and not self.leaving and not self._decided_again and decides_again:
            self._decided_again, self.leave_at_ms = True, now_ms + 1
            return False
        self.leaving = is_over
        return self.leaving


def free_at_eviction(coalescer: Coalescer) -> asyncio.Task[None]:
    """A task that runs as long as the run is cached: the worker's eviction of a run cancels all its tasks. Its end
    empties the coalescer, which is most of what a run holds.

    An ended run is full of reference cycles, the SDK's own among them. Only the garbage collector frees these, and it
    seldom looks at objects that have lived for long: with 50,000 waiting keys four runs of 65 MiB each were kept.

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
