"""Everything about one entity: its shadow, its latest changes, and what is scheduled for it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from oldhost_sync.store.tables import (
    IS_FATE_OF_CHANGE,
    entities,
    outbox_events,
    pending_fates,
    scheduled_changes,
    units,
)
from oldhost_sync.store.views.sync_status import sync_status

CHANGES_SHOWN = 20


def read_entity(connection: Connection, host: str, entity_type: str, entity_id: str) -> dict[str, Any]:
    if entity_type == "unit":
        shadow = select(units).where(units.c.host == host, units.c.id == entity_id)
    else:
        shadow = select(entities).where(
            entities.c.host == host, entities.c.entity_type == entity_type, entities.c.id == entity_id
        )
    columns, later_written = outbox_events.c, pending_fates.c
    latest = (
        select(
            columns.id.label("change_id"), columns.idempotency_key, columns.event_type, columns.priority_class,
            columns.created_at.label("accepted_at"),
            func.coalesce(columns.outcome, later_written.outcome).label("outcome"),
            func.coalesce(columns.processed_at, later_written.decided_at).label("processed_at"),
            func.coalesce(columns.nonce, later_written.nonce).label("nonce"),
            func.coalesce(columns.error, later_written.error).label("error"),
        )
        .outerjoin(pending_fates, IS_FATE_OF_CHANGE)
        .where(columns.host == host, columns.entity_type == entity_type, columns.entity_id == entity_id)
        .order_by(columns.id.desc())
        .limit(CHANGES_SHOWN)
    )  # fmt: skip
    later = scheduled_changes.c
    scheduled = (
        select(later.idempotency_key, later.event_type, later.not_before, later.created_at)
        .where(later.host == host, later.recorded_at.is_(None), later.cancelled_at.is_(None))
        .where(later.entity_type == entity_type, later.entity_id == entity_id)
        .order_by(later.not_before, later.id)
        .limit(CHANGES_SHOWN)
    )
    row = connection.execute(shadow).one_or_none()
    status = sync_status(connection, host, entity_type, entity_id)
    return {
        "shadow": None if row is None else _shown(dict(row._mapping), status),  # noqa: SLF001 - a row by name
        "changes": [dict(each._mapping) for each in connection.execute(latest)],  # noqa: SLF001
        "scheduled": [dict(each._mapping) for each in connection.execute(scheduled)],  # noqa: SLF001
    }


def _shown(shadow: dict[str, Any], status: str) -> dict[str, Any]:
    """The row, with the derived sync status; the stored one is for the previous release."""
    return {name: value for name, value in shadow.items() if not name.startswith("sync")} | {"sync_status": status}
