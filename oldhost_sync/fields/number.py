"""Numbers and flags. In query parameters, paths and forms they are text; in a JSON body a number is a number."""

from __future__ import annotations

import math
import re

from oldhost_sync.fields.errors import InvalidField
from oldhost_sync.policy import limits

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_NO_WHOLE = "must be a whole number in decimal digits, within 64 bit"
_NUMBER = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?([eE][+-]?[0-9]{1,3})?")


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
