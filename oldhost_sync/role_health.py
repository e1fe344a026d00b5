"""How a role knows of its own health: that its loop turns (alive), and that it reaches what it needs (ready).

Alive depends on nothing but this process: what is not alive is to be restarted. Ready is about the moment: each need is
asked for every two seconds, for two seconds at most, and one that does not answer is not asked again meanwhile. So
both tell the truth within five seconds, also when a server hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

# Between two looks, and how long a need may take to answer.
NEEDS_LOOK_SECONDS = 2.0
ANSWER_SECONDS_MAX = 2.0
# A look that is older says nothing of now: five looks, on a busy machine.
STALE_SECONDS = 10.0
TURN_SECONDS = 1.0
# A loop that stood for so long does not turn again by itself; on a busy machine it stands for some seconds.
STUCK_SECONDS = 30.0


class Liveness:
    """Whether the role's loop turns: it says so every second."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._beat_at = monotonic()

    async def keep(self) -> None:
        """Say so until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(TURN_SECONDS)

    def beat(self) -> None:
        self._beat_at = self._monotonic()

    @property
    def is_alive(self) -> bool:
        return self._monotonic() - self._beat_at <= STUCK_SECONDS


class Readiness:
    """The last check of each thing that a role needs: an empty text is well, any other says what is wrong."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._found: tuple[float, Mapping[str, str]] | None = None
        self._found_at = 0.0

    def found(self, troubles: Mapping[str, str]) -> None:
        self._found = self._monotonic(), dict(troubles)
        self._found_at = time.time()

    def looked_at(self) -> float:
        """When the role last looked at itself, in seconds since 1970; 0: not yet."""
        return self._found_at

    def look(self) -> tuple[bool, dict[str, str]]:
        """Whether it is ready, and the text for each need."""
        if self._found is None:
            return False, {"role": "it has just started"}
        at, troubles = self._found
        shown = {need: trouble or "ok" for need, trouble in sorted(troubles.items())}
        if self._monotonic() - at > STALE_SECONDS:
            return False, {**shown, "role": "it has not looked for a while: it is stuck or very busy"}
        return not any(troubles.values()), shown


class Need:
    """Something that a role can't do without. `ask` gives what is wrong, or an empty text; it may take long."""

    def __init__(self, name: str, ask: Callable[[], Awaitable[str]], silence: str) -> None:
        self.name = name
        self._ask = ask
        self._silence = silence
        self._under_way: asyncio.Task[str] | None = None

    async def trouble(self) -> str:
        """What is wrong; after ANSWER_SECONDS_MAX at the latest."""
        if self._under_way is None:
            self._under_way = asyncio.ensure_future(self._ask())
        task = self._under_way
        await asyncio.wait({task}, timeout=ANSWER_SECONDS_MAX)
        if not task.done():
            return self._silence
        self._under_way = None
        return task.result()


@asynccontextmanager
async def beside(watching: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """`watching` runs until the body ends."""
    task = asyncio.create_task(watching)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def troubles(needs: Iterable[Need]) -> dict[str, str]:
    """What is wrong with each, by name; all are asked at the same time."""
    asked = list(needs)
    found = await asyncio.gather(*(need.trouble() for need in asked))
    return {need.name: trouble for need, trouble in zip(asked, found, strict=True)}
