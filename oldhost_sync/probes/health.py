"""A role's own health: whether its event loop runs (alive), and whether it reaches what it needs (ready).

Alive depends only on this process: a process that is not alive must be restarted. Ready is about the present moment:
each need is checked every two seconds, with a timeout of two seconds, and a check that has not ended is not started
again. So both are at most five seconds out of date, even if a server hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

logger = logging.getLogger(__name__)

# The time between two checks, and how long a need may take to answer.
NEEDS_POLL_SECONDS = 2.0
ANSWER_SECONDS_MAX = 2.0
# An older result no longer counts: five missed checks, which a busy machine may need.
STALE_SECONDS = 10.0
TURN_SECONDS = 1.0
# An event loop that stood still this long will not recover by itself; on a busy machine it stands still for seconds.
STUCK_SECONDS = 30.0
# After an unforeseen error a watch begins anew; an error that lasts is logged once in each TOLD_SECONDS.
ANEW_SECONDS = 5.0
TOLD_SECONDS = 300.0


class Liveness:
    """Whether the role's event loop runs: it records a beat every second."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._beat_at = monotonic()

    async def keep(self) -> None:
        """Record beats until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(TURN_SECONDS)

    def beat(self) -> None:
        self._beat_at = self._monotonic()

    @property
    def is_alive(self) -> bool:
        return self._monotonic() - self._beat_at <= STUCK_SECONDS


class Readiness:
    """The last check of each need of a role: an empty text means that it is fine, any other text says what is wrong."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._found: tuple[float, Mapping[str, str]] | None = None
        self._found_at = 0.0

    def found(self, troubles: Mapping[str, str]) -> None:
        self._found = self._monotonic(), dict(troubles)
        self._found_at = time.time()

    def looked_at(self) -> float:
        """When the role last checked itself, in seconds since 1970; 0: not yet."""
        return self._found_at

    def poll(self) -> tuple[bool, dict[str, str]]:
        """Whether it is ready, and the text for each need."""
        if self._found is None:
            return False, {"role": "it has just started"}
        at, troubles = self._found
        shown = {need: trouble or "ok" for need, trouble in sorted(troubles.items())}
        if self._monotonic() - at > STALE_SECONDS:
            return False, {**shown, "role": "its last check is too old: it is stuck or very busy"}
        return not any(troubles.values()), shown


class Need:
    """Something that a role needs. `ask` returns what is wrong, or an empty text; it may take long."""

    def __init__(self, name: str, ask: Callable[[], Awaitable[str]], silence: str) -> None:
        self.name = name
        self._ask = ask
        self._silence = silence
        self._under_way: asyncio.Task[str] | None = None

    async def trouble(self) -> str:
        """Returns what is wrong, after ANSWER_SECONDS_MAX at the latest."""
        if self._under_way is None:
            self._under_way = asyncio.ensure_future(self._ask())
        task = self._under_way
        await asyncio.wait({task}, timeout=ANSWER_SECONDS_MAX)
        if not task.done():
            return self._silence
        self._under_way = None
        return task.result()


@asynccontextmanager
async def running_during(watch: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run `watch` until the body ends. After an error that it did not foresee it begins anew: no role goes on without
    its watches, and none ends for one.
    """
    task = asyncio.create_task(_begun_anew(watch))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _begun_anew(watch: Callable[[], Coroutine[Any, Any, None]]) -> None:
    task, told_at = asyncio.current_task(), float("-inf")
    while True:
        try:
            return await watch()
        except Exception:
            if task is not None and task.cancelling():
                raise  # a TaskGroup may answer its cancellation with an error of a child
            if time.monotonic() >= told_at + TOLD_SECONDS:
                logger.exception("a watch of this role failed unexpectedly; it begins anew")
                told_at = time.monotonic()
        await asyncio.sleep(ANEW_SECONDS)


async def troubles(needs: Iterable[Need]) -> dict[str, str]:
    """What is wrong with each need, by name; all are checked at the same time."""
    asked = list(needs)
    found = await asyncio.gather(*(need.trouble() for need in asked))
    return {need.name: trouble for need, trouble in zip(asked, found, strict=True)}
