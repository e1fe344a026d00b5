"""The database's part of the status: the ledger, dead letters, the oldest waiting change.

Nothing here takes a lock or writes. Lists are paged by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Select, exists, func, select
from sqlalchemy.engine import Connection

from oldhost_sync.store.outbox.books import read_books
from oldhost_sync.store.tables import IS_FATE_OF_CHANGE, alerts, nonce_ledger, outbox_events, pending_fates
from oldhost_sync.store.views import late_emergencies
from oldhost_sync.store.views.service_time import usual_service_ms


def read_status(connection: Connection, host: str) -> dict[str, Any]:
    """The books, the ledger's row, and the figures that people ask for first."""
    return {
        "books": asdict(read_books(connection, host)),
        "ledger": read_ledger(connection, host),
        "oldest_waiting_at": oldest_waiting_at(connection, host),
        "open_alerts": count_open_alerts(connection, host),
        "emergency_breaches": asdict(late_emergencies.breaches(connection, host)),
        "usual_service_ms": usual_service_ms(connection, host),
    }


def read_ledger(connection: Connection, host: str) -> dict[str, Any] | None:
    """The host's row of the ledger; None before the first session."""
    row = connection.execute(select(nonce_ledger).where(nonce_ledger.c.host == host)).one_or_none()
    return None if row is None else {name: value for name, value in row._mapping.items() if name != "host"}  # noqa: SLF001


def oldest_waiting_at(connection: Connection, host: str) -> datetime | None:
    """When the oldest change without a fate was accepted (the 4 h promise is measured from it)."""
    return connection.execute(
        select(outbox_events.c.created_at)
        .where(outbox_events.c.host == host, outbox_events.c.processed_at.is_(None), ~exists().where(IS_FATE_OF_CHANGE))
        .order_by(outbox_events.c.id)
        .limit(1)
    ).scalar()


def count_open_alerts(connection: Connection, host: str) -> int:
    query = select(func.count()).where(alerts.c.host == host, alerts.c.closed_at.is_(None))
    return connection.execute(query).scalar_one()


# -------------------------------------------------------------------------------------------------------- dead letters

# Held changes are counted up to this for each letter: a page has hundreds of letters, and one entity may hold 50,000.
HELD_COUNTED_MAX = 1_000

_NAMES = ("idempotency_key", "entity_type", "entity_id", "event_type", "priority_class")
_CHANGE = (
    outbox_events.c.id.label("change_id"),
    *(outbox_events.c[name] for name in _NAMES),
    outbox_events.c.created_at.label("accepted_at"),
)
_LETTER = (
    *_CHANGE,
    outbox_events.c.processed_at,
    outbox_events.c.nonce,
    outbox_events.c.error,
    outbox_events.c.unproven.label("unsure"),
)
# A change that was rejected while its row was locked: its fate is still in `pending_fates`.
_DECIDED_AT = pending_fates.c.decided_at.label("processed_at")
_PENDING_LETTER = (
    *_CHANGE,
    _DECIDED_AT,
    pending_fates.c.nonce,
    pending_fates.c.error,
    pending_fates.c.unproven.label("unsure"),
)


def list_dead_letters(connection: Connection, host: str, *, after_id: int, limit: int) -> list[dict[str, Any]]:
    """Dead letters that wait for a decision, oldest first, each with how many are held behind it: at
    most HELD_COUNTED_MAX are counted.
    """
    query = (
        select(*_LETTER)
        .where(outbox_events.c.host == host, outbox_events.c.outcome == "DEAD", outbox_events.c.id > after_id)
        .order_by(outbox_events.c.id)
        .limit(limit)
    )
    pending = (
        select(*_PENDING_LETTER)
        .join(pending_fates, IS_FATE_OF_CHANGE)
        .where(pending_fates.c.host == host, pending_fates.c.outcome == "DEAD", pending_fates.c.change_id > after_id)
        .order_by(pending_fates.c.change_id)
        .limit(limit)
    )
    return _with_held(connection, host, pending, query, limit)


def dead_letters_of(connection: Connection, host: str, change_ids: Sequence[int]) -> list[dict[str, Any]]:
    """Those of `change_ids` that are dead letters, as :func:`list_dead_letters` returns them."""
    query = select(*_LETTER).where(
        outbox_events.c.host == host, outbox_events.c.id.in_(change_ids), outbox_events.c.outcome == "DEAD"
    )
    pending = (
        select(*_PENDING_LETTER)
        .join(pending_fates, IS_FATE_OF_CHANGE)
        .where(pending_fates.c.host == host, pending_fates.c.outcome == "DEAD")
        .where(pending_fates.c.change_id.in_(change_ids))
    )
    return _with_held(connection, host, pending, query, len(change_ids))


def _with_held(
    connection: Connection, host: str, pending: Select[Any], query: Select[Any], limit: int
) -> list[dict[str, Any]]:
    # In this order, so that one that moves between the two queries is found twice and not missed.
    found = {row.change_id: dict(row._mapping) for row in (*connection.execute(pending), *connection.execute(query))}  # noqa: SLF001
    letters = [found[change_id] for change_id in sorted(found)[:limit]]
    for letter in letters:
        letter["held"] = _count_held(connection, host, letter)
    return letters


def find_outcome(connection: Connection, host: str, change_id: int) -> tuple[bool, str | None]:
    """Whether there is such a change, and its fate so far."""
    row = connection.execute(
        select(func.coalesce(outbox_events.c.outcome, pending_fates.c.outcome).label("outcome"))
        .outerjoin(pending_fates, IS_FATE_OF_CHANGE)
        .where(outbox_events.c.host == host, outbox_events.c.id == change_id)
    ).one_or_none()
    return (False, None) if row is None else (True, row.outcome)


def _count_held(connection: Connection, host: str, letter: dict[str, Any]) -> int:
    held = (
        select(outbox_events.c.id)
        .with_hint(outbox_events, "FORCE INDEX (ix_outbox_events_status)", "mysql")
        .where(
            outbox_events.c.host == host,
            outbox_events.c.outcome.is_(None),
            outbox_events.c.entity_type == letter["entity_type"],
            outbox_events.c.entity_id == letter["entity_id"],
            outbox_events.c.priority_class == "TXN",
            outbox_events.c.id > letter["change_id"],
        )
        .limit(HELD_COUNTED_MAX)
    )
    return connection.execute(select(func.count()).select_from(held.subquery())).scalar_one()
