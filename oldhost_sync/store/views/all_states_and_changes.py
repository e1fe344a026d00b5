"""All states and all changes of a host, for tools that check them from outside. It reads everything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection

from oldhost_sync.store.tables import entities, outbox_events, units


def states(connection: Connection, host: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Entity type, id and shadow state (payloads by event type) of each entity."""
    unit_rows = select(units.c.id, units.c.state).where(units.c.host == host)
    other_rows = select(entities.c.entity_type, entities.c.id, entities.c.state).where(entities.c.host == host)
    found = [("unit", row.id, row.state) for row in connection.execute(unit_rows)]
    return found + [(row.entity_type, row.id, row.state) for row in connection.execute(other_rows)]


def changes(connection: Connection, host: str) -> Iterable[Any]:
    """Each change in id order: key, class, entity, times, outcome."""
    columns = outbox_events.c
    query = (
        select(
            columns.id, columns.idempotency_key, columns.priority_class, columns.entity_type, columns.entity_id,
            columns.created_at, columns.processed_at, columns.outcome,
        )
        .where(columns.host == host)
        .order_by(columns.id)
    )  # fmt: skip
    return connection.execute(query).all()
