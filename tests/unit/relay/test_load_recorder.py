"""The load is recorded by whoever is the active relay, and a failure is not tried again at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oldhost_sync.relay.duty import HostsFailed
from oldhost_sync.relay.host_watch import SAMPLE_SECONDS, LoadRecorder
from oldhost_sync.store.errors import DatabaseUnavailable, StatementTooSlow, StoreError, TransactionContended


class Threads:
    """Stands for `Transactions`: notes the hosts, or fails for one."""

    def __init__(self, fails_for: str = "", error: type[StoreError] = TransactionContended) -> None:
        self.fails_for, self.error = fails_for, error
        self.recorded: list[tuple[str, int]] = []

    async def run(self, fn: Callable[..., Any], *, attempts: int) -> None:
        host = fn.keywords["host"]  # type: ignore[attr-defined]
        if host == self.fails_for:
            raise self.error("away")
        self.recorded.append((host, attempts))


def a_recorder(threads: Threads, **held: bool) -> LoadRecorder:
    leaderships: dict[str, Any] = {
        host: SimpleNamespace(held=lambda _now, is_held=is_held: is_held) for host, is_held in held.items()
    }
    return LoadRecorder(threads, leaderships)  # type: ignore[arg-type]


def test_only_the_active_relay_of_a_host_records_it() -> None:
    threads = Threads()
    pause = asyncio.run(a_recorder(threads, north=True, south=False).run_once(0.0))
    assert (threads.recorded, pause) == ([("north", 1)], SAMPLE_SECONDS)


@pytest.mark.parametrize("error", [TransactionContended, StatementTooSlow])
def test_the_other_hosts_are_recorded_and_the_loop_is_told_which_was_not(error: type[StoreError]) -> None:
    threads = Threads("north", error)
    with pytest.raises(HostsFailed, match=r"^north: away$"):
        asyncio.run(a_recorder(threads, north=True, south=True).run_once(0.0))
    assert threads.recorded == [("south", 1)]


def test_an_outage_of_the_database_is_waited_for_once_and_not_for_each_host() -> None:
    threads = Threads("north", DatabaseUnavailable)
    with pytest.raises(DatabaseUnavailable, match=r"^away$"):
        asyncio.run(a_recorder(threads, north=True, south=True, west=True).run_once(0.0))
    assert threads.recorded == []
