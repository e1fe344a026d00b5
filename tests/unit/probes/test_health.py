"""A role's watches."""

from __future__ import annotations

import asyncio

import pytest

from oldhost_sync.probes import health as role_health
from oldhost_sync.probes.health import running_during


def test_a_watch_that_fails_unexpectedly_is_told_of_and_begins_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(role_health, "ANEW_SECONDS", 0)
    begun = []

    async def scenario() -> None:
        thrice = asyncio.Event()

        async def watch() -> None:
            begun.append(1)
            if len(begun) < 3:
                raise ValueError("8 is not a valid status")
            thrice.set()
            await asyncio.Event().wait()

        async with running_during(watch):
            await asyncio.wait_for(thrice.wait(), 10)

    asyncio.run(scenario())
    assert [record.message for record in caplog.records] == ["a watch of this role failed unexpectedly; it begins anew"]


def test_a_watch_that_answers_its_cancellation_with_an_error_ends() -> None:
    async def scenario() -> None:
        begun = asyncio.Event()

        async def watch() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("a child failed at the same moment")

        with pytest.raises(ValueError, match="a child failed"):
            async with running_during(watch):
                await begun.wait()

    asyncio.run(asyncio.wait_for(scenario(), 10))
