"""The error of every parser."""

from __future__ import annotations


class InvalidField(ValueError):  # noqa: N818 - a name says what happened
    """A field is not of its documented form. The text names the field and says what it must be, never what it was.

    `kind`: `invalid`; for a whole text, `not-json` or `duplicate-name`.
    """

    def __init__(self, field: str, message: str, kind: str = "invalid") -> None:
        super().__init__(message)
        self.field = field
        self.kind = kind
