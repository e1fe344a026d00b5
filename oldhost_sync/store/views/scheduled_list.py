"""The list of scheduled changes, in due order."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.store.columns import UtcDateTime

# Two branches, one for the same due time and one for later ones, so that each reads the index and stops at the limit.
_PART = (
    "(SELECT id, idempotency_key, entity_type, entity_id, event_type, source, not_before, created_at "
    "FROM scheduled_changes FORCE INDEX (ix_scheduled_changes_due) WHERE host = :host AND recorded_at IS NULL "
    "AND cancelled_at IS NULL AND {after} ORDER BY not_before, id LIMIT :limit)"
)
_LIST = text(
    f"{_PART.format(after='not_before = :at AND id > :id')} UNION ALL {_PART.format(after='not_before > :at')} "
    "ORDER BY not_before, id LIMIT :limit"
).columns(not_before=UtcDateTime(), created_at=UtcDateTime())


class ScheduledPlace(NamedTuple):
    """The last one that was listed: when it is due, in UTC without a zone, and its number."""

    not_before: datetime
    scheduled_id: int


BEGINNING = ScheduledPlace(datetime(1970, 1, 1), 0)  # noqa: DTZ001 - as the column holds it


def list_scheduled(
    connection: Connection, host: str, *, limit: int, after: ScheduledPlace = BEGINNING
) -> tuple[list[dict[str, Any]], ScheduledPlace | None]:
    """At most `limit` changes that are neither recorded nor cancelled, and where the next page begins; None at the end.

    The index has `recorded_at` and `cancelled_at` first, both NULL here, so a page reads only the rows that it shows.
    """
    values = {"host": host, "at": after.not_before, "id": after.scheduled_id, "limit": limit + 1}
    found = [dict(row._mapping) for row in connection.execute(_LIST, values)]  # noqa: SLF001 - a row by name
    page = found[:limit]
    ends = [ScheduledPlace(row["not_before"].replace(tzinfo=None), row.pop("id")) for row in page]
    return page, ends[-1] if len(found) > limit else None
