"""Openings of sessions hold no slot that other activities need.

While an OldHost is away, its writer's openings follow each other, 20 s each. If they shared eight slots with all other
activities of all hosts, a dozen OldHosts that are away would keep a worker from recording submissions, pauses and
alerts of the others. So there is a slot for each host's opening, and the rest run so many at a time.
"""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

OPENING = "open_session"
# Other activities of the shared queue at a time, for all hosts.
DATABASE_ACTIVITIES = 8


def shared_slots(hosts: int) -> int:
    """How many activities of the shared queue a worker of so many hosts takes at a time."""
    return DATABASE_ACTIVITIES + hosts


class DatabaseActivityLimit(Interceptor):
    """Lets `limit` activities run at a time, not counting openings."""

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
