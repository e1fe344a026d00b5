"""The header Retry-After: how long a host, or a proxy before it, asks us to wait. Seconds, or a date.

A date is compared with the answer's own Date, so that no clock of ours matters. What can't be read counts as absent.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from oldhost_sync.oldhost.wire import RETRY_AFTER_SECONDS_MAX, Banned, Busy, Replay

T = TypeVar("T")


def retry_after_seconds(value: str, date: str) -> float | None:
    """What the header says, at most a day; `date`: the header Date, empty if there is none. None: nothing readable."""
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), RETRY_AFTER_SECONDS_MAX)
    then, now = _instant(value), _instant(date)
    if then is None or now is None:
        return None
    return min(max(0.0, (then - now).total_seconds()), RETRY_AFTER_SECONDS_MAX)


def told_by_header(answer: T, seconds: float | None) -> T:
    """The answer, with what its header says where its body says nothing."""
    if seconds is None:
        return answer
    if (isinstance(answer, Banned | Replay) and answer.retry_after is None) or (
        isinstance(answer, Busy) and not answer.retry_after
    ):
        return replace(answer, retry_after=seconds)
    return answer


def _instant(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
