"""The page of metrics: how old it may be."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from oldhost_sync.api import telemetry
from oldhost_sync.api.telemetry import RequestMetrics


def test_the_page_is_rendered_again_after_a_second_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(telemetry, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    rendered = [b"first", b"second", b"third"]
    monkeypatch.setattr(telemetry, "generate_latest", lambda _registry: rendered.pop(0))

    async def read() -> list[bytes]:
        page, pages = RequestMetrics(), []
        for at in (100.0, 100.0, 100.9, 101.0, 101.9):
            now[0] = at
            pages.append(await page.text())
        return pages

    assert asyncio.run(read()) == [b"first", b"first", b"first", b"second", b"second"]
