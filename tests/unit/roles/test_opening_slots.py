"""Openings of sessions do not wait for other activities, nor these for openings."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from temporalio.worker import ActivityInboundInterceptor

from oldhost_sync.roles.sdk_worker import OPENING, DatabaseActivityLimit


class Executing:
    """Activities that end when `over` is set; the names of those that have begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.over = asyncio.Event()

    async def execute_activity(self, given: Any) -> None:
        self.begun.append(given.fn.__name__)
        await self.over.wait()


async def begun(names: list[str], limit: int) -> list[str]:
    """Which of these activities begin while none ends."""
    executing = Executing()
    chain = DatabaseActivityLimit(limit).intercept_activity(cast("ActivityInboundInterceptor", executing))
    given = [cast("Any", SimpleNamespace(fn=SimpleNamespace(__name__=name))) for name in names]
    tasks = [asyncio.create_task(chain.execute_activity(one)) for one in given]
    while len(executing.begun) < min(len(names), limit + names.count(OPENING)):
        await asyncio.sleep(0)
    found = list(executing.begun)
    executing.over.set()
    await asyncio.gather(*tasks)
    assert len(executing.begun) == len(names), "all end in the end"
    return found


def test_no_more_activities_on_the_database_than_the_limit_run_at_a_time() -> None:
    assert asyncio.run(begun(["record_submissions"] * 5, limit=2)) == ["record_submissions"] * 2


def test_openings_are_not_counted() -> None:
    names = [OPENING] * 4 + ["record_conditions"] * 2 + [OPENING]
    assert sorted(asyncio.run(begun(names, limit=1))) == [OPENING] * 5 + ["record_conditions"]
