"""A Temporal Worker that leaves in time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from temporalio.worker import Worker

logger = logging.getLogger(__name__)


class LeavingWorker(Worker):
    """A Worker that waits no longer than `leaves_within_seconds` for its own end.

    The SDK can miss the end of its last activity: its core looks whether one still runs, and then waits to be told of
    an end, which can come in between (1 of 100 Workers that left while activities ended, 1.35.0). It would wait for
    ever, and the process with it.
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
        """Stop taking tasks and wait for the running ones, as the SDK does; then end what still waits.

        Who asks again waits for the same end; who stops waiting doesn't stop it.
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
                "Temporal's SDK did not stop within %g s; this process ends all the same", self.leaves_within_seconds
            )
            if self._running:
                self._running.cancel()
