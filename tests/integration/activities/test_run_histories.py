"""Which runs came before: Temporal's list of runs is written a moment after a run began."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.signal_recovery import LISTED_AGAIN, TemporalHistories

BEGAN = datetime(2026, 5, 1, 12, tzinfo=UTC)


@dataclass
class Listing:
    """A client that knows the runs that were listed, the first one first."""

    runs: list[str]

    async def list_workflows(self, _query: str, limit: int) -> AsyncIterator[Any]:
        for place, run_id in enumerate(self.runs[:limit]):
            yield SimpleNamespace(run_id=run_id, start_time=BEGAN + timedelta(seconds=place))


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def before(run_id: str, loop: asyncio.AbstractEventLoop, *listed: str) -> list[str]:
    histories = TemporalHistories(Listing(list(listed)), loop)  # type: ignore[arg-type]
    return histories.runs_before("oldhost", run_id, lambda: None)


def test_the_runs_before_one_are_those_that_began_earlier_the_latest_first(loop: asyncio.AbstractEventLoop) -> None:
    assert before("third", loop, "first", "second", "third", "fourth") == ["second", "first"]


def test_a_run_that_is_not_listed_yet_leaves_the_wait_to_temporal(loop: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(ApplicationError) as failed:
        before("second", loop, "first")
    assert not failed.value.non_retryable
    assert failed.value.next_retry_delay == LISTED_AGAIN
