"""The watch over the relays goes on, whatever becomes of the database."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from oldhost_sync.store.errors import CommitUncertain, DatabaseUnavailable
from oldhost_sync.worker import watch as watch_module
from oldhost_sync.worker.watch import RelayWatch


def test_a_database_that_is_away_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = RelayWatch(cast("Any", None), ("north",))
    answers = iter([DatabaseUnavailable("away"), CommitUncertain("lost at COMMIT"), ZeroDivisionError()])

    def look() -> None:
        raise next(answers)

    monkeypatch.setattr(watch, "poll", look)
    monkeypatch.setattr(watch_module, "RELAYS_POLL_SECONDS", 0.0)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(watch.watch())
