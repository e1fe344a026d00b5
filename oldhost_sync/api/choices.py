"""Which fields of a request go together, and which exclude one another: for the OpenAPI document."""

from __future__ import annotations

from typing import Any

_NONE = {"type": "null"}

# One entity, or all.
FLUSH: dict[str, Any] = {
    "oneOf": [
        {
            "required": ["entity_type", "entity_id"],
            "properties": {"entity_type": {"type": "string"}, "entity_id": {"type": "string"}},
        },
        {"properties": {"entity_type": _NONE, "entity_id": _NONE}},
    ]
}
# Some letters, or a group of them.
LETTERS: dict[str, Any] = {
    "oneOf": [
        {"required": ["change_ids"], "properties": {"change_ids": {"type": "array"}, "group": _NONE}},
        {"required": ["group"], "properties": {"change_ids": _NONE, "group": {"type": "string"}}},
    ]
}
