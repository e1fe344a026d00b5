"""A record that the API answers with stands once, where it is read from the database: a dataclass whose fields are
described where a name does not say enough, with an example beside them.

The API answers with the dataclass itself, and pydantic makes its part of the OpenAPI document: from the docstring and
the fields' metadata. The example is added where an answer has the record. The descriptions are no docstrings: Python
keeps none of a field, and pydantic would parse the source for them, which Python 3.11 cannot do in two threads at once.

All examples are from one small story. Unit 12B is cleaned (change 4711, applied); one of its booking changes is
rejected (4712), and another is held behind it (4713).
"""

from __future__ import annotations

from typing import Any


def complete_schema(schema: dict[str, Any], record: type) -> None:
    """Add the example of each field. An answer has every field, so a default is nobody's business."""
    example = getattr(record, "EXAMPLE", {})
    for name, each in schema.get("properties", {}).items():
        each.pop("default", None)
        if isinstance(example.get(name), str | int | float):
            each["examples"] = [example[name]]


def described(text: str) -> dict[str, Any]:
    """The metadata of a field that `text` describes in the OpenAPI document."""
    return {"description": text}


# A record's `__pydantic_config__`. A plain dictionary: nothing here needs pydantic.
RECORD: dict[str, Any] = {
    "json_schema_serialization_defaults_required": True,
    "json_schema_extra": complete_schema,
}
# The idempotency key of change 4711.
KEY = "3f6c2b1e-0a57-4f0e-9a5e-0d1f6f2f7a11"
# The metadata of a record's number, which an answer calls `id`.
NUMBER: dict[str, Any] = {"alias": "id", "title": "Id"}
# The metadata of a field that no answer shows.
HIDDEN: dict[str, Any] = {"exclude": True}
