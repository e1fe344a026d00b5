"""What is looked at and rendered for the overview: no more than must be, and never all in one go."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.situation import Observations, judge
from oldhost_sync.api.situation_reader import View
from oldhost_sync.console import overview_parts
from oldhost_sync.console.layout import Layout
from oldhost_sync.console.overview_parts import PARTS, OverviewParts
from oldhost_sync.policy.tuning import WriterPolicy
from oldhost_sync.store.read.figures import RINGS

AT = datetime(2026, 11, 22, 3, tzinfo=UTC)


class Stage:
    """Parts whose rendering is noted instead of done; `now`: seconds, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.rendered: list[str] = []
        self.drawn = 0
        dependencies = SimpleNamespace(
            host="h",
            database=self,
            writer=None,
            books=SimpleNamespace(read=None),
            policy=WriterPolicy(),
            called=str.format,
        )
        self.overview = OverviewParts(cast(Dependencies, dependencies), cast(Layout, self), lambda: self.now)
        monkeypatch.setattr(overview_parts, "draw", self._draw)
        monkeypatch.setattr(self.overview._situation_reader, "read", self._look)

    async def run(self, _read: object) -> list[Any]:
        return []

    def part(self, name: str, **_: object) -> str:
        self.rendered.append(name)
        return name

    async def _look(self) -> View:
        return View(AT, judge(Observations(AT, writer_away="no worker")), None, None, None, None, ())

    def _draw(self, *_: object) -> list[Any]:
        self.drawn += 1
        return []


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_others_get_their_turn_between_two_parts(stage: Stage) -> None:
    turns: list[int] = []

    async def others() -> None:
        while True:
            turns.append(len(stage.rendered))
            await asyncio.sleep(0)

    async def work() -> None:
        beside = asyncio.create_task(others())
        await stage.overview.shown()
        beside.cancel()

    asyncio.run(work())
    assert set(range(1, len(PARTS))) <= set(turns)


def test_charts_are_drawn_once_for_the_samples_that_were_read(stage: Stage) -> None:
    async def look() -> None:
        await stage.overview.charts("1h")

    asyncio.run(look())
    stage.now += RINGS["1h"].step_s / 2
    asyncio.run(look())
    assert stage.drawn == 1
    stage.now += RINGS["1h"].step_s / 2
    asyncio.run(look())
    assert stage.drawn == 2
