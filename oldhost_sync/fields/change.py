"""A change as an application sends it: a JSON object, or a mapping in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oldhost_sync.fields.scalar import InvalidField

REQUIRED = ("entity_type", "entity_id", "event_type", "payload")
FIELDS = (*REQUIRED, "idempotency_key", "occurred_at", "not_before", "traceparent")
FLUSH_ONE_OR_ALL = "give both entity_type and entity_id to flush one entity, or neither to flush all"
NO_OBJECT = "a change must be a JSON object"


def read_change(value: object) -> dict[str, Any]:
    """Its fields by name; optional ones may be missing or null. What each field holds is checked by `accept`."""
    if not isinstance(value, Mapping):
        raise InvalidField("", NO_OBJECT)
    unknown = [name for name in value if name not in FIELDS]
    if unknown:
        shown = ", ".join(_shown(name) for name in unknown[:5])
        raise InvalidField(_shown(unknown[0]), f"the change has unknown fields: {shown}; known are {', '.join(FIELDS)}")
    missing = [name for name in REQUIRED if value.get(name) is None]
    if missing:
        raise InvalidField(missing[0], f"the change lacks {', '.join(missing)}")
    return {name: value.get(name) for name in FIELDS}


def _shown(name: object) -> str:
    return str(name)[:64].encode("unicode_escape").decode()
