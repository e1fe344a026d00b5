"""JSON text: UTF-8, every name once in its object, numbers that every program reads alike.

The database, OldHost and other languages would read anything else differently, or not at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from oldhost_sync.fields.scalar import InvalidField
from oldhost_sync.policy import limits

NOT_JSON, DUPLICATE_NAME = "not-json", "duplicate-name"
_TEXT = ""


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text. Its numbers, its texts and its depth are checked by `check_json`."""
    try:
        text = text.decode() if isinstance(text, bytes) else text  # json itself would guess the encoding
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except UnicodeDecodeError:
        raise InvalidField(_TEXT, "it is not UTF-8", NOT_JSON) from None
    except RecursionError:
        raise InvalidField(_TEXT, "it nests too deeply", NOT_JSON) from None
    except json.JSONDecodeError as error:
        message = f"it is not JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}"
        raise InvalidField(_TEXT, message, NOT_JSON) from None
    except InvalidField:
        raise
    except ValueError:  # json has no position for this: Python's limit on the digits of an integer
        raise InvalidField(_TEXT, f"it has {_BEYOND_64_BIT}") from None


_BEYOND_64_BIT = "a whole number beyond 64 bit: send it as text"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise InvalidField(_TEXT, "it has a name twice in one object: send each name once", DUPLICATE_NAME)
    return made


def _constant(name: str) -> Any:
    raise InvalidField(_TEXT, f"it has {name}, which is not JSON", NOT_JSON)


def check_json(field: str, value: object, levels: int = limits.PAYLOAD_DEPTH_MAX) -> None:
    """Refuse what is not a JSON value that every program reads alike: at most `levels` deep, names and texts in Unicode
    (no lone surrogates), whole numbers within 64 bit, others within a double.
    """
    _check(field, value, levels, levels)


def _check(field: str, value: object, left: int, levels: int) -> None:
    if isinstance(value, dict | list | tuple | Mapping):
        if not left:
            raise InvalidField(field, f"{field} nests deeper than {levels} levels")
        if isinstance(value, Mapping):
            for name in value:
                if not isinstance(name, str) or not is_unicode(name):
                    raise InvalidField(field, f"{field} has a field whose name is not text")
        for item in value.values() if isinstance(value, Mapping) else value:
            _check(field, item, left - 1, levels)
    elif fault := _fault(value):
        raise InvalidField(field, f"{field} has {fault}")


def _fault(value: object) -> str:
    """What is wrong with a value that has no parts; empty when nothing is."""
    match value:
        case str():
            return "" if is_unicode(value) else "text that is not valid Unicode (a lone surrogate)"
        case None | bool():
            return ""
        case int():
            return "" if limits.INTEGER_MIN <= value <= limits.INTEGER_MAX else _BEYOND_64_BIT
        case float():
            return "" if math.isfinite(value) else "a number that no double holds"
    return f"a {type(value).__name__}, which is not a JSON type"


def is_unicode(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def canonical_json(field: str, value: object) -> str:
    """The same text for equal JSON values: sorted keys, no blanks, ASCII only; its length is its size in bytes."""
    check_json(field, value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=dict)
