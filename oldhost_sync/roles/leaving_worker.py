"""A Temporal Worker whose shutdown always ends in time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from temporalio.worker import Worker

logger = logging.getLogger(__name__)


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
