"""Days, and moments: RFC 3339 text with its offset from UTC, or, from Python, a datetime with a time zone."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

from oldhost_sync.fields.errors import InvalidField
from oldhost_sync.policy import limits

D = TypeVar("D", date, datetime)
_RFC_3339 = re.compile(limits.MOMENT_PATTERN)
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


def read_moment(field: str, value: object) -> datetime:
    """`value` in UTC; microseconds at most, further digits are cut. Time arithmetic with it can't overflow."""
    moment = _parsed(value)
    if moment is None:
        raise InvalidField(field, f"{field} must be a time with a time zone (RFC 3339), such as 2026-05-01T12:00:00Z")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:  # beyond the years that there are
        moment = datetime.min.replace(tzinfo=UTC)
    return _within(field, moment)


def read_due_moment(field: str, value: object, now: datetime) -> datetime:
    """A moment that may be ahead, but not absurdly: a larger value is a mistake in the unit of time."""
    moment = read_moment(field, value)
    if moment > now + timedelta(days=limits.NOT_BEFORE_DAYS_MAX):
        raise InvalidField(field, f"{field} is more than {limits.NOT_BEFORE_DAYS_MAX} days ahead")
    return moment


def read_day(field: str, text: str) -> date:
    try:
        if _DAY.fullmatch(text):
            return _within(field, date.fromisoformat(text))
    except InvalidField:
        raise
    except ValueError:  # no such day
        pass
    raise InvalidField(field, f"{field} must be a day, such as 2026-11-01")


def _within(field: str, moment: D) -> D:
    if not limits.YEAR_MIN <= moment.year <= limits.YEAR_MAX:
        raise InvalidField(field, f"{field} must be in a year from {limits.YEAR_MIN} to {limits.YEAR_MAX}")
    return moment


def _parsed(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.utcoffset() is not None else None
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:  # no such day
        return None
