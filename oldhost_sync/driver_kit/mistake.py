"""How the kit says what is wrong."""

from __future__ import annotations


class Mistake(AssertionError):  # noqa: N818 - a driver has it
    """What the driver, or a sample of it, does wrong."""


def check(holds: object, otherwise: str) -> None:
    """Raises Mistake."""
    if not holds:
        raise Mistake(otherwise)
