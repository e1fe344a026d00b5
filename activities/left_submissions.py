"""Signalled changes that this worker can't record for long: people are told, once of each.

The writer tries them again and again, and whoever sent the signal got no answer that could say so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.transactions import run_in_transaction

logger = logging.getLogger(__name__)

TOLD_AFTER_SECONDS = 60.0
# The oldest are forgotten beyond this.
KNOWN_MAX = 10_000
CAUSE = "writes-refused:signals"
LOCKED = "another transaction holds rows that they need"


@dataclass(slots=True)
class _Left:
    """Since when a submission is left, and why, as last seen. `since` None: people were told."""

    since: float | None
    why: str


@dataclass(slots=True)
class _News:
    """What is to be told of a host: those left for long, why, and whether none is any more."""

    left: list[tuple[str, str]] = field(default_factory=list)
    recorded_late: int = 0
    why: str = ""
    is_over: bool = False


class LeftSubmissions:
    """`clock`: seconds, monotonic. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By host and key.
        self._left: dict[tuple[str, str], _Left] = {}

    def note(self, engine: Engine, host: str, left: Mapping[str, bool], why: str = LOCKED) -> None:
        """By the submissions' keys, whether each was left, and why. Raises an alert for those that were left for long,
        also if they are recorded now, and closes it when all of them are.
        """
        news = self._news_of(host, left, why)
        if not news.left and not news.recorded_late and not news.is_over:
            return
        try:
            run_in_transaction(engine, partial(_tell, host=host, news=news))
        except (StoreError, DBAPIError) as error:
            logger.warning("the alert about changes that can't be recorded can't be stored (%s)", type(error).__name__)
            return
        with self._lock:
            for key in news.left:
                self._left[key] = _Left(None, news.why)

    def _news_of(self, host: str, left: Mapping[str, bool], why: str) -> _News:
        now, news, was_told = self._clock(), _News(), False
        with self._lock:
            for key in [(host, key) for key, is_left in left.items() if is_left]:
                one = self._left.setdefault(key, _Left(now, why))
                one.why = why
                if _is_long(one.since, now):
                    news.left.append(key)
                    news.why = why
            for key in [(host, key) for key, is_left in left.items() if not is_left and (host, key) in self._left]:
                one = self._left.pop(key)
                was_told |= one.since is None
                if _is_long(one.since, now):
                    news.recorded_late += 1
                    news.why = news.why or one.why
            if was_told or news.recorded_late:
                told = (key for key, one in self._left.items() if one.since is None and key[0] == host)
                news.is_over = not news.left and next(told, None) is None
            while len(self._left) > KNOWN_MAX:
                del self._left[next(iter(self._left))]
        return news


def _is_long(since: float | None, now: float) -> bool:
    """Left for long, and not told yet."""
    return since is not None and now - since >= TOLD_AFTER_SECONDS


def _tell(connection: Connection, host: str, news: _News) -> None:
    count = len(news.left) + news.recorded_late
    if count:
        message = f"Changes that applications signalled could not be recorded for a minute: {news.why}"
        raise_alert(connection, host, "writes-refused", "critical", message, dedupe_key=CAUSE, count=count, adds=True)
    if news.is_over:
        close_alert(connection, host, CAUSE)
