"""A change's payload: it is personal data, so each reading is recorded in the audit with who read it."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.audit import record_act

READ_PAYLOAD = "read-payload"

_PAYLOAD = text("SELECT payload FROM outbox_events WHERE host = :host AND id = :id")


def payload_of(connection: Connection, host: str, change_id: int, *, operator: Actor) -> dict[str, Any] | None:
    """The payload of a change, recorded as read by `operator` in the same transaction; None when there is no such
    change.
    """
    row = connection.execute(_PAYLOAD, {"host": host, "id": change_id}).one_or_none()
    if row is None:
        return None
    record_act(connection, host=host, action=READ_PAYLOAD, operator=operator, reason="", change_id=change_id)
    payload: dict[str, Any] = json.loads(row.payload)
    return payload


def note_entity_read(connection: Connection, host: str, entity_type: str, entity_id: str, *, operator: Actor) -> None:
    """Record in the audit that `operator` read the payloads of an entity."""
    detail = {"entity_type": entity_type, "entity_id": entity_id}
    record_act(connection, host=host, action=READ_PAYLOAD, operator=operator, reason="", detail=detail)
