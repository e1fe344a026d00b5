"""Slots for workflow tasks that can run out, so that a Worker that leaves loses none.

A Worker that leaves cancels its polls. A task that the server hands over in that moment is lost, and its workflow
stands still until the task's time limit of 10 s has passed: 9 of 50 Workers that left a busy workflow (SDK 1.35.0,
server 1.32; with the server's `enableCancelWorkerPollsOnShutdown` 13 of 65), and two of ten rolling upgrades in an hour
of soak. A poll that was used up can't be cancelled, and without a slot only those few begin that had one in hand: 0 of
80.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from temporalio.worker import (
    CustomSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
)


class Slot(SlotPermit):
    """For one poll and the task that it brings. `sticky`: the poll is for workflows that are kept in memory here."""

    def __init__(self, *, sticky: bool) -> None:
        self.sticky = sticky
        self.used = False


class WorkflowSlots(CustomSlotSupplier):
    """As many slots as are asked for, until they run out. All but `reserve_slot` is called in the SDK's threads."""

    def __init__(self) -> None:
        self._lent: dict[Slot, None] = {}
        self._runs_out = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._returned = asyncio.Event()

    async def run_out(self, seconds: float) -> None:
        """Give no slot any more, and return when this process works on no workflow and polls for none that it keeps.

        A workflow that is at rest, or has fewer tasks in `seconds` than there are polls, uses not all of them up: then
        it returns after `seconds`, and a task is lost only if it comes in the moment in which the Worker leaves.
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
        """Waits for ever when there are none any more: the Worker cancels it when it leaves."""
        if self._runs_out:
            await asyncio.get_running_loop().create_future()
        slot = Slot(sticky=context.is_sticky)
        self._lent[slot] = None
        return slot

    def try_reserve_slot(self, _context: SlotReserveContext) -> None:
        """None: a workflow begins by a poll."""

    def mark_slot_used(self, context: SlotMarkUsedContext) -> None:
        assert isinstance(context.permit, Slot)
        context.permit.used = True

    def release_slot(self, context: SlotReleaseContext) -> None:
        assert isinstance(context.permit, Slot)
        self._lent.pop(context.permit, None)
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._returned.set)
