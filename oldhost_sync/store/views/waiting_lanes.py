"""What waits by class, from the outbox alone: shown while the writer does not answer. It counts debounced changes, too,
which the writer's own lanes do not.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import PriorityClass

# Counting stops there, for each class: it takes a few milliseconds.
LANE_COUNTED_MAX = 10_000

_OF_CLASS = (
    "(SELECT '{cls}' AS name, COUNT(*) AS depth, "
    "GREATEST(0, COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(w.created_at), UTC_TIMESTAMP(6)), 0)) DIV 1000 AS oldest_ms "
    "FROM (SELECT o.created_at FROM outbox_events o FORCE INDEX (ix_outbox_events_unrelayed) WHERE o.host = :host "
    "AND o.processed_at IS NULL AND o.priority_class = '{cls}' AND NOT EXISTS "
    f"(SELECT 1 FROM pending_fates p WHERE p.host = o.host AND p.change_id = o.id) LIMIT {LANE_COUNTED_MAX}) w)"
)
_LANES = text(" UNION ALL ".join(_OF_CLASS.format(cls=cls.value) for cls in PriorityClass))


def waiting_lanes(connection: Connection, host: str) -> dict[str, dict[str, int]]:
    """By class, in the form of the writer's lanes: `depth` and `oldest_age_ms`."""
    found = connection.execute(_LANES, {"host": host})
    return {row.name: {"depth": int(row.depth), "oldest_age_ms": int(row.oldest_ms)} for row in found}
