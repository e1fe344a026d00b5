"""The load is recorded by whoever is the active relay, and a failure is not tried again at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oldhost_sync.relay.load_recorder import SAMPLE_SECONDS, LoadRecorder
from oldhost_sync.store.errors import DatabaseUnavailable


class Threads:
    """Stands for `Transactions`: notes the hosts, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.recorded: list[tuple[str, int]] = []

    async def run(self, fn: Callable[..., Any], *, attempts: int) -> None:
        if self.error is not None:
            raise self.error
        self.recorded.append((fn.keywords["host"], attempts))  # type: ignore[attr-defined]


def a_recorder(threads: Threads, **held: bool) -> LoadRecorder:
    leaderships: dict[str, Any] = {
        host: SimpleNamespace(held=lambda _now, is_held=is_held: is_held) for host, is_held in held.items()
    }
    return LoadRecorder(threads, leaderships)  # type: ignore[arg-type]


def test_only_the_active_relay_of_a_host_records_it() -> None:
    threads = Threads()
    pause = asyncio.run(a_recorder(threads, north=True, south=False).run_once(0.0))
    assert (threads.recorded, pause) == ([("north", 1)], SAMPLE_SECONDS)


def test_an_outage_is_the_loop_s_to_wait_for() -> None:
    recorder = a_recorder(Threads(DatabaseUnavailable("away")), north=True)
    with pytest.raises(DatabaseUnavailable):
        asyncio.run(recorder.run_once(0.0))
    assert recorder.pause_s == SAMPLE_SECONDS
