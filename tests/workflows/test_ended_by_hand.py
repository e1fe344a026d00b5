"""Activities that a person ends with Temporal's own tools (`temporal activity complete` and `fail`), with whatever
result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.workflows.conftest import LWW, TXN, Stage, Writer, report_failed_by_hand, stuck

pytestmark = pytest.mark.temporal


async def complete_by_hand(writer: Writer, name: str, result: Any = "done by hand") -> None:
    await (await stuck(writer, name)).complete(result)
    writer.world.stuck.remove(name)


async def pause(writer: Writer) -> None:
    assert await writer.operate("pause") == "paused"


async def submit(writer: Writer, accepted: int = 2) -> None:
    change = {"entity_type": "unit", "entity_id": "b", "event_type": "booking_created", "payload": "two"}
    await writer.handle.signal("submit_change", change)
    await writer.until(lambda: len(writer.world.books.changes) == accepted)


@pytest.mark.parametrize("name", ["load_outstanding", "open_session", "send"])
async def test_what_was_completed_with_something_else_is_done_again(stage: Stage, name: str) -> None:
    async with stage.writer(stuck=[name]) as writer:
        change = await writer.take(TXN, "a")
        await complete_by_hand(writer, name)
        await writer.skip(60)
        await writer.until_quiet()
        assert writer.world.applied_ids == [change]


@pytest.mark.parametrize(
    ("name", "asks", "result"),
    [("record_act", pause, "done"), ("record_submissions", submit, "done"), ("record_submissions", submit, [])],
)
async def test_what_is_recorded_is_recorded_although_the_activity_was_completed_with_something_else(
    stage: Stage, name: str, asks: Callable[[Writer], Coroutine[Any, Any, None]], result: Any
) -> None:
    async with stage.writer(stuck=[name]) as writer:
        await writer.until_state("SENDING")
        await writer.take(LWW, "a")
        asked = asyncio.create_task(asks(writer))
        await complete_by_hand(writer, name, result)
        await writer.skip(5)
        await asked


async def test_the_search_for_unread_signals_begins_anew_in_the_same_run(stage: Stage) -> None:
    async with stage.writer(stuck=["recover_submissions"]) as writer:
        await complete_by_hand(writer, "recover_submissions")
        await writer.skip(5)
        await submit(writer, 1)  # it had to wait for the search
        first, again = writer.world.recoveries
        assert first == again


async def test_what_is_the_case_is_recorded_though_its_activity_was_failed_by_hand(stage: Stage) -> None:
    async with stage.writer() as writer:
        await report_failed_by_hand(writer)
        assert len(writer.world.told("unreadable-signal")) == 1
