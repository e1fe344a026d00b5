"""Reads the parameters of an admin request: each value is checked; the error names it and says what is allowed."""

from collections.abc import Mapping
from typing import Any


class InvalidParameterError(Exception):
    """A parameter is invalid; nothing was changed."""


def read_only(wanted: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    unknown = [key for key in wanted if key not in known]
    if unknown:
        raise InvalidParameterError(f"{what} has no {', '.join(unknown)}; it has: {', '.join(known) or 'nothing'}")


def read_number(key: str, value: Any, *, up_to: float = float("inf")) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= up_to
        or value == float("inf")
    ):
        limit = "on" if up_to == float("inf") else f"to {up_to:g}"
        raise InvalidParameterError(f"{key} must be a finite number from 0 {limit}, not {value!r}")
    return value


def read_whole_number(key: str, value: Any, *, up_to: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0 or (up_to is not None and value > up_to):
        limit = "on" if up_to is None else f"to {up_to}"
        raise InvalidParameterError(f"{key} must be a whole number from 0 {limit}, not {value!r}")
    return value


def read_shift(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameterError(f"{key} must be a whole number, not {value!r}")
    return value


def read_flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidParameterError(f"{key} must be true or false, not {value!r}")
    return value


def read_text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidParameterError(f"{key} must be a text, not {value!r}")
    return value


def read_choice(key: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise InvalidParameterError(f"{key} must be {' or '.join(choices)}, not {value!r}")
    return value


def read_object(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidParameterError(f"{key} must be a JSON object, not {value!r}")
    return value
