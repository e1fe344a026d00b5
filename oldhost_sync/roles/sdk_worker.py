"""What the SDK's Worker lacks: slots that run out before it leaves, slots for openings, and an end in time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from temporalio.worker import (
    ActivityInboundInterceptor,
    CustomSlotSupplier,
    ExecuteActivityInput,
    Interceptor,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    Worker,
)

logger = logging.getLogger(__name__)
OPENING = "open_session"
# Activities of the shared queue at a time, for all hosts, besides openings.
DATABASE_ACTIVITIES = 8


class Slot(SlotPermit):
    """For one poll and the task that it returns. `sticky`: the poll is for workflows that are cached here."""

    def __init__(self, *, sticky: bool) -> None:
        self.sticky = sticky
        self.used = False


class WorkflowSlots(CustomSlotSupplier):
    """Slots for workflow tasks: any number of them, until `run_out`; so a Worker loses no task when it shuts down.

    A Worker that shuts down cancels its polls. A task that the server delivers at that moment is lost, and its workflow
    stands still until the task's timeout of 10 s: this happened to 9 of 50 Workers that left a busy workflow (SDK
    1.35.0, server 1.32; with the server's `enableCancelWorkerPollsOnShutdown` 13 of 65). So first no more slots are
    given: each poll needs one, so the open polls are used up before the shutdown and few are left to cancel: 0 of 80
    Workers lost a task. All methods but `reserve_slot` are called in the SDK's threads.
    """

    def __init__(self) -> None:
        self._lent: dict[Slot, None] = {}
        self._runs_out = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._returned = asyncio.Event()

    async def run_out(self, seconds: float) -> None:
        """Give no more slots; return when this process runs no workflow task and has no sticky poll open.

        Workflows that are idle, or have fewer tasks in `seconds` than there are polls, do not use up all polls: then
        this returns after `seconds`, and a task is lost only if it arrives just as the Worker shuts down.
        """
        self._runs_out = True
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                while any(slot.sticky or slot.used for slot in list(self._lent)):
                    await self._returned.wait()
                    self._returned.clear()
        except TimeoutError:
            pass

    async def reserve_slot(self, context: SlotReserveContext) -> Slot:
        """Waits for ever after `run_out`; the Worker cancels it when it shuts down."""
        if self._runs_out:
            await asyncio.get_running_loop().create_future()
        slot = Slot(sticky=context.is_sticky)
        self._lent[slot] = None
        return slot

    def try_reserve_slot(self, _context: SlotReserveContext) -> None:
        """Returns None: a workflow task is only taken by a poll."""

    def mark_slot_used(self, context: SlotMarkUsedContext) -> None:
        assert isinstance(context.permit, Slot)
        context.permit.used = True

    def release_slot(self, context: SlotReleaseContext) -> None:
        assert isinstance(context.permit, Slot)
        self._lent.pop(context.permit, None)
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, so `run_out` does not wait any more
                self._loop.call_soon_threadsafe(self._returned.set)


def shared_slots(hosts: int) -> int:
    """How many activities of the shared queue a worker of so many hosts takes at a time."""
    return DATABASE_ACTIVITIES + hosts


class DatabaseActivityLimit(Interceptor):
    """Lets `limit` activities run at a time, not counting openings of sessions.

    While an OldHost is away, its writer's openings follow each other, 20 s each. If they shared eight slots with all
    other activities of all hosts, a dozen OldHosts that are away would keep a worker from recording submissions, pauses
    and alerts of the others. So there is a slot for each host's opening, and the rest run so many at a time.
    """

    def __init__(self, limit: int) -> None:
        self._room = asyncio.Semaphore(limit)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Waiting(next, self._room)


class _Waiting(ActivityInboundInterceptor):
    def __init__(self, after: ActivityInboundInterceptor, room: asyncio.Semaphore) -> None:
        super().__init__(after)
        self._room = room

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        if getattr(input.fn, "__name__", "") == OPENING:
            return await super().execute_activity(input)
        async with self._room:
            return await super().execute_activity(input)


class LeavingWorker(Worker):
    """A Worker whose shutdown takes at most `leaves_within_seconds`.

    The SDK can miss the end of its last activity: its core checks whether one still runs, and then waits for a
    notification, but the activity may end in between (1 of 100 Workers that left while activities ended, 1.35.0). Then
    it would wait for ever, and the process with it.
    """

    def __init__(self, *arguments: Any, leaves_within_seconds: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.leaves_within_seconds = leaves_within_seconds
        self._running: asyncio.Task[Any] | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def run(self) -> None:
        self._running = asyncio.current_task()
        await super().run()

    async def shutdown(self) -> None:
        """Stop taking tasks and wait for the running ones, as the SDK does; after the time limit cancel the rest.

        A second call waits for the same shutdown; cancelling a call does not cancel the shutdown.
        """
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._leave())
        await asyncio.shield(self._leaving)

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(self.leaves_within_seconds):
                await super().shutdown()
        except TimeoutError:
            logger.warning(
                "Temporal's SDK did not stop within %g s; this process ends anyway", self.leaves_within_seconds
            )
            if self._running:
                self._running.cancel()
