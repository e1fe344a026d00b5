"""The fields that are one value: names and other short texts, numbers and flags, days and moments.

In query parameters, paths and forms numbers are text; in a JSON body a number is a number.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

from oldhost_sync.policy import limits

_NAME = re.compile(limits.NAME_PATTERN)
_KEY = re.compile(limits.KEY_PATTERN)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_NO_WHOLE = "must be a whole number in decimal digits, within 64 bit"
_NUMBER = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?([eE][+-]?[0-9]{1,3})?")
_RFC_3339 = re.compile(limits.MOMENT_PATTERN)
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
D = TypeVar("D", date, datetime)


class InvalidField(ValueError):  # noqa: N818 - a name says what happened
    """The error of every parser: a field is not of its documented form.

    The text names the field and says what it must be, never what it was.
    `kind`: `invalid`; for a whole text, `not-json` or `duplicate-name`.
    """

    def __init__(self, field: str, message: str, kind: str = "invalid") -> None:
        super().__init__(message)
        self.field = field
        self.kind = kind


def read_name(field: str, value: object) -> str:
    """A name of ours: a host, a type of entities or of events."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidField(field, f"{field} must be 1 to 64 of the characters A-Z a-z 0-9 _ . - and not begin with -")
    return value


def read_id(field: str, value: object, length_max: int = limits.ID_LENGTH_MAX) -> str:
    """An id of an application, or the name of a source: compared byte for byte, so what can't be seen is refused."""
    if not isinstance(value, str) or not 0 < len(value) <= length_max or not value.isprintable():
        raise InvalidField(field, f"{field} must be 1 to {length_max} printable characters")
    return value


def read_key(field: str, value: object, length_max: int = limits.KEY_LENGTH_MAX) -> str:
    """An idempotency key: it travels in HTTP headers."""
    if not isinstance(value, str) or len(value) > length_max or not _KEY.fullmatch(value):
        raise InvalidField(field, f"{field} must be 1 to {length_max} visible ASCII characters without spaces")
    return value


def read_label(field: str, value: object, length_max: int) -> str:
    """A text that people read in a list: one line, without control characters."""
    if not isinstance(value, str) or not 0 < len(value) <= length_max or _CONTROL.search(value):
        raise InvalidField(field, f"{field} must be 1 to {length_max} characters without control characters")
    return value


def read_whole(field: str, text: str) -> int:
    if not _WHOLE.fullmatch(text) or not limits.INTEGER_MIN <= int(text) <= limits.INTEGER_MAX:
        raise InvalidField(field, f"{field} {_NO_WHOLE}")
    return int(text)


def read_json_whole(field: str, value: object) -> int:
    """Not text and not true. 7.0 is 7: JSON has one kind of numbers."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not limits.INTEGER_MIN <= value <= limits.INTEGER_MAX:
        raise InvalidField(field, f"{field} {_NO_WHOLE}")
    return value


def read_decimal(field: str, text: str) -> float:
    """As JSON writes numbers."""
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise InvalidField(field, f"{field} must be a number in decimal digits, such as 2.5")
    return float(text)


def read_flag(field: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidField(field, f"{field} must be true or false")
    return text == "true"


def read_moment(field: str, value: object) -> datetime:
    """RFC 3339 text with its offset from UTC, or, from Python, a datetime with a time zone.

    Returns it in UTC; microseconds at most, further digits are cut. Time arithmetic with it can't overflow.
    """
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
