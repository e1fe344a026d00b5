"""In which order a worker leaves, and for whom it waits how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from oldhost_sync.roles import worker
from oldhost_sync.settings import Settings

IN_ORDER = ["opens no more", "slots run out", "shared leaves", "sessions drained", "own leaves"]


@dataclass
class Told:
    """What happened, in order. `answers`: whether Temporal does, without which the shared Worker does not end."""

    events: list[str] = field(default_factory=list)
    answers: asyncio.Event = field(default_factory=asyncio.Event)


class NamedWorker:
    """As much of a Temporal Worker as is used."""

    def __init__(self, told: Told, name: str, ends: asyncio.Event | None = None) -> None:
        self._told, self._name, self._ends = told, name, ends
        self._left = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def shutdown(self) -> None:
        if not self._left:
            self._left = True
            self._told.events.append(f"{self._name} leaves")
        if self._ends:
            await self._ends.wait()


class QuietSessions:
    owner = "a worker"

    def __init__(self, told: Told) -> None:
        self._told = told

    def watch(self) -> None:
        """Nothing to look at."""

    def open_no_more(self) -> None:
        self._told.events.append("opens no more")

    def drain(self) -> None:
        self._told.events.append("sessions drained")


@asynccontextmanager
async def leaving(told: Told, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.Task[None]]:
    """A worker that has been told to leave."""

    class Slots:
        async def run_out(self, _seconds: float) -> None:
            told.events.append("slots run out")

    class Unasked:
        async def watch(self, _client: object) -> None:
            await asyncio.Event().wait()

    both = NamedWorker(told, "shared", told.answers), NamedWorker(told, "own")
    monkeypatch.setattr(worker, "workers", lambda *_: both)
    monkeypatch.setattr(worker, "WorkflowSlots", Slots)
    monkeypatch.setattr(worker, "Registration", Unasked)
    stopping = asyncio.Event()
    stopping.set()
    nobody: Any = None
    sessions: Any = QuietSessions(told)
    async with AsyncExitStack() as at_the_end:
        settings = Settings(oldhost_url="http://10.0.0.7:80")
        task = asyncio.create_task(worker._work(settings, nobody, nobody, sessions, nobody, stopping))
        at_the_end.callback(task.cancel)
        yield task


def test_others_decide_before_the_sessions_end_and_sends_are_refused_until_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def leave() -> list[str]:
        told = Told()
        told.answers.set()
        async with leaving(told, monkeypatch) as task, asyncio.timeout(30):
            await task
        return told.events

    assert asyncio.run(leave()) == IN_ORDER


def test_what_is_on_the_wire_does_not_wait_for_a_temporal_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave() -> None:
        told = Told()
        async with leaving(told, monkeypatch) as task, asyncio.timeout(30):
            while told.events != IN_ORDER:
                await asyncio.sleep(0)
            assert not task.done()
            told.answers.set()
            await task

    monkeypatch.setattr(worker, "SHARED_LEAVES_SECONDS", 0.01)
    asyncio.run(leave())
