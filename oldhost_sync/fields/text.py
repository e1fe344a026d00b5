"""Names, ids, keys and other short texts."""

from __future__ import annotations

import re

from oldhost_sync.fields.errors import InvalidField
from oldhost_sync.policy import limits

_NAME = re.compile(limits.NAME_PATTERN)
_KEY = re.compile(limits.KEY_PATTERN)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


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
