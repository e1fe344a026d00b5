"""Reads the state of writer and database for people: each with a timeout, so that neither outage hides the other.

A query that exceeds its timeout keeps running; until it ends it is not started again, so that a server that hangs
blocks one thread and not all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from oldhost_sync.api.bounded_waits import is_silent
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.situation import Observations, Situation, judge
from oldhost_sync.policy.tuning import USUAL_PROMISES, Promises
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.read.host_condition import HostCondition, read_condition, waiting_lanes

if TYPE_CHECKING:
    from oldhost_sync.api.dependencies import Dependencies

T = TypeVar("T")

# Short, because a person waits for the page.
POLL_SECONDS_MAX = 2.5
# While a page is open, it is refreshed every two seconds. After a longer pause it is unknown what happened in between.
PAUSE_SECONDS_MAX = 10.0
# The beginning of a problem's detail for writes, which does not apply here.
_NOT_A_WRITE = "Nothing was recorded: "
# The overview shows the share of each class among this many next operations, and lists the first ten.
UPCOMING = 40
# The kind of trouble that is no more than that no answer came in time.
SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Observation(Generic[T]):
    """The result of a query; None if it failed, and then `trouble` says why, and `kind` is the kind of problem.

    `since`: when it began to fail, if that was observed. `step`: what to do, if the problem says it.
    """

    value: T | None = None
    trouble: str = ""
    kind: str = ""
    since: datetime | None = None
    step: str = ""


def trouble_of(problem: Problem) -> Observation[Any]:
    detail = str(problem.content["detail"]).removeprefix(_NOT_A_WRITE)
    return Observation(trouble=detail, kind=problem.kind, step=problem.cure)


class Query(Generic[T]):
    """One query, of which at most one call is in progress."""

    def __init__(self, ask: Callable[[], Awaitable[T]], silence: str) -> None:
        self._ask = ask
        self._silence = silence
        self._under_way: asyncio.Task[T] | None = None
        # The time and the result of the last poll, if there was one.
        self._last: tuple[datetime, Observation[T]] | None = None

    async def see(self) -> Observation[T]:
        """Returns the answer, or why there is none, after POLL_SECONDS_MAX at the latest."""
        seen, now = await self._poll(), datetime.now(UTC)
        if seen.trouble and self._last is not None and (now - self._last[0]).total_seconds() <= PAUSE_SECONDS_MAX:
            at, before = self._last
            # A reason that was shown stays while a further poll takes too long: it is the better one of the two.
            known = before if before.trouble and seen.kind == SILENCE else seen
            seen = replace(known, since=before.since if before.trouble else at)
        self._last = now, seen
        return seen

    async def _poll(self) -> Observation[T]:
        if self._under_way is None:
            self._under_way = asyncio.ensure_future(self._ask())
        task = self._under_way
        if await is_silent(task, POLL_SECONDS_MAX):
            return Observation(trouble=self._silence, kind=SILENCE)
        if self._under_way is task:
            self._under_way = None
        try:
            return Observation(task.result())
        except Problem as problem:
            return trouble_of(problem)
        except StoreError as error:
            return Observation(trouble=str(error), kind="database-away")


def observed(
    at: datetime,
    writer: Observation[dict[str, Any]],
    condition: Observation[HostCondition],
    promises: Promises,
    called: Callable[[str], str],
) -> Observations:
    """What was found of writer and database, to be judged."""
    return Observations(
        at,
        writer.value,
        writer.trouble,
        writer.kind,
        condition.value,
        condition.trouble,
        writer.since,
        condition.since,
        writer.step,
        promises,
        called,
    )


@dataclass(frozen=True, slots=True)
class View:
    """Everything the overview shows. `upcoming`: the next operations; `status`: the books, counted some seconds ago.
    `lanes`: what waits by class, from the writer, else from the database.
    """

    at: datetime
    situation: Situation
    writer: dict[str, Any] | None
    condition: HostCondition | None
    status: dict[str, Any] | None
    upcoming: list[dict[str, Any]] | None
    troubles: tuple[str, ...]
    lanes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    promises: Promises = USUAL_PROMISES


class SituationReader:
    """Gives a :class:`View` on request; an outage raises no error but is shown in it."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._promises = dependencies.policy.promises
        self._called = partial(dependencies.called, dependencies.host)
        self._writer = Query(lambda: dependencies.writer.query("status"), "the writer does not answer in time")
        self._upcoming = Query(
            lambda: dependencies.writer.query("upcoming", UPCOMING), "the writer does not answer in time"
        )
        self._condition = Query(
            lambda: dependencies.database.run(lambda connection: read_condition(connection, dependencies.host)),
            "MariaDB does not answer in time",
        )
        self._lanes = Query(
            lambda: dependencies.database.run(lambda connection: waiting_lanes(connection, dependencies.host)),
            "MariaDB does not answer in time",
        )
        self._status = Query(dependencies.books.read, "counting the books takes too long")

    async def read(self) -> View:
        writer, upcoming, condition, status = await asyncio.gather(
            self._writer.see(), self._upcoming.see(), self._condition.see(), self._status.see()
        )
        lanes = writer.value.get("lanes", {}) if writer.value else (await self._lanes.see()).value
        at = datetime.now(UTC)
        return View(
            at=at,
            situation=judge(observed(at, writer, condition, self._promises, self._called)),
            writer=writer.value,
            condition=condition.value,
            status=status.value,
            upcoming=upcoming.value,
            troubles=tuple(dict.fromkeys(seen.trouble for seen in (writer, condition, status) if seen.trouble)),
            lanes=lanes or {},
            promises=self._promises,
        )
