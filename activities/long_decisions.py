"""A resolve may concern a day's operations: then it takes minutes, in one transaction. Its statements have that time,
and it heartbeats meanwhile, so that a dead worker is noticed.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import Engine
from temporalio import activity

from oldhost_sync.policy import limits
from oldhost_sync.store.engine import create_engine

BEAT_SECONDS = 5.0


@contextmanager
def unhurried(engine: Engine, seconds: float = limits.RESOLVE_STATEMENT_SECONDS_MAX) -> Iterator[Engine]:
    """An engine for the same database on which a statement may take `seconds`. Meanwhile the activity heartbeats."""
    url = engine.url.render_as_string(hide_password=False)
    own = create_engine(url, pool_size=1, statement_seconds=seconds)
    over = threading.Event()
    beats = threading.Thread(target=contextvars.copy_context().run, args=(_beat_until, over), daemon=True)
    beats.start()
    try:
        yield own
    finally:
        over.set()
        beats.join()
        own.dispose()


def _beat_until(over: threading.Event) -> None:
    while not over.wait(BEAT_SECONDS):
        activity.heartbeat()
