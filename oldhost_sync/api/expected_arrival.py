"""When OldHost is expected to have a change, for the answer to its write; a write never waits long for it.

The writer is asked at most once a second, and only while changes come. Every answer counts what this process recorded
since then. With several processes, each counts its own only.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from oldhost_sync.api import http_limits
from oldhost_sync.api.problems import Problem
from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.forecast.outlook import RELAY_MS, Outlook
from oldhost_sync.policy.rules.quiet_hours import QuietHours, with_quiet_hours
from oldhost_sync.policy.tuning import Promises
from oldhost_sync.store.intake.change_recorder import RecordedChange

Since = dict[PriorityClass, dict[str, int]]


class ExpectedArrivals:
    """Of one host. `ask`: the writer's query; `clock`: monotonic seconds. Quiet hours that have begun are a pause,
    which the writer knows; those to come are added here.
    """

    def __init__(
        self,
        ask: Callable[[str], Awaitable[Any]],
        promises: Callable[[], Promises],
        clock: Callable[[], float],
        quiet_hours: Callable[[], Sequence[QuietHours]] = tuple,
    ) -> None:
        self._ask = ask
        self._promises = promises
        self._clock = clock
        self._quiet_hours = quiet_hours
        self._outlook: Outlook | None = None
        self._at = self._next_at = -math.inf
        self._asking: asyncio.Task[None] | None = None
        self._recorded: deque[tuple[float, ChangeRef]] = deque(maxlen=http_limits.OUTLOOK_CHANGES_MAX)
        self._since: Since = {}

    def look(self) -> None:
        """Call it before a change is recorded: the writer is asked meanwhile, if it is time."""
        if self._asking is None and self._clock() >= self._next_at:
            self._asking = asyncio.create_task(self._renew())

    async def known(self) -> None:
        """Call it once the change is recorded: if there is no outlook yet, this waits for a moment."""
        if self._asking is not None and not self._is_recent():
            await asyncio.wait({self._asking}, timeout=http_limits.OUTLOOK_WAIT_SECONDS_MAX)

    def of(self, change: RecordedChange) -> dict[str, Any]:
        """The fields of the answer: None for a scheduled or repeated change, or while nobody can know."""
        ref, at = change.ref, self._clock()
        if ref is None or change.duplicate or self._outlook is None or not self._is_recent():
            return {"expected_at": None, "keeps_promise": None}
        age_ms = 1000 * (at - self._at)
        expected_ms = self._outlook.expected_ms(ref.priority_class, ref.property_id, age_ms, self._since)
        takes = with_quiet_hours(self._quiet_hours(), change.accepted_at, timedelta(milliseconds=expected_ms))
        self._recorded.append((at, ref))
        self._count(ref)
        return {
            "expected_at": _text(change.accepted_at + takes),
            "keeps_promise": takes <= timedelta(milliseconds=self._promises().of(ref.priority_class)),
        }

    def _is_recent(self) -> bool:
        return self._clock() < self._at + http_limits.OUTLOOK_SECONDS_MAX

    async def _renew(self) -> None:
        began, pause = self._clock(), http_limits.OUTLOOK_SECONDS
        try:
            content = await self._ask("outlook")
        except Problem:
            content = None
        finally:
            self._asking = None
        ended = self._clock()
        self._outlook, self._at = (None if content is None else Outlook.from_json(content)), ended
        if self._outlook is not None and self._outlook.is_calm:
            pause = http_limits.OUTLOOK_SECONDS_CALM
        self._next_at = ended + max(pause, (ended - began) / http_limits.OUTLOOK_SHARE_MAX)
        while self._recorded and self._recorded[0][0] < began - RELAY_MS / 1000:
            self._recorded.popleft()
        self._since = {}
        for _, ref in self._recorded:
            self._count(ref)

    def _count(self, ref: ChangeRef) -> None:
        of_class = self._since.setdefault(ref.priority_class, {})
        of_class[ref.property_id] = of_class.get(ref.property_id, 0) + 1


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
