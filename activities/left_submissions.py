"""Signalled changes that this worker can't record for long: people are told, once of each.

The writer tries them again and again, and whoever sent the signal got no answer that could say so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.transactions import run_in_transaction

logger = logging.getLogger(__name__)

TOLD_AFTER_SECONDS = 60.0
# The oldest are forgotten beyond this.
KNOWN_MAX = 10_000
LOCKED = "another transaction holds rows that they need"


class LeftSubmissions:
    """`clock`: seconds, monotonic. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By host and key: since when it is left; None once that was told.
        self._since: dict[tuple[str, str], float | None] = {}

    def note(self, engine: Engine, host: str, left: Mapping[str, bool], why: str = LOCKED) -> None:
        """By the submissions' keys, whether each was left. Raises an alert for those that have been left for long."""
        due = self._due(host, left)
        if not due:
            return
        try:
            run_in_transaction(engine, partial(_tell, host=host, count=len(due), why=why))
        except (StoreError, DBAPIError) as error:
            logger.info("the alert about changes that can't be recorded can't be stored yet (%s)", type(error).__name__)
            return
        with self._lock:
            self._since.update(dict.fromkeys(due))

    def _due(self, host: str, left: Mapping[str, bool]) -> list[tuple[str, str]]:
        now = self._clock()
        due = []
        with self._lock:
            for key, is_left in left.items():
                if not is_left:
                    self._since.pop((host, key), None)
                    continue
                since = self._since.setdefault((host, key), now)
                if since is not None and now - since >= TOLD_AFTER_SECONDS:
                    due.append((host, key))
            while len(self._since) > KNOWN_MAX:
                del self._since[next(iter(self._since))]
        return due


def _tell(connection: Connection, host: str, count: int, why: str) -> None:
    message = f"Changes that applications signalled have not been recorded for a minute: {why}"
    raise_alert(connection, host, "writes-refused", "critical", message, count=count, adds=True)
