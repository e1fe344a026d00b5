"""The oldest change of an entity and class that is outstanding, or a dead letter: one row of an index, however many the
entity has.

Whether it is older than a candidate is not asked in the subquery: as a condition it would not bound the range, and all
of the entity's changes would be read to find that none is older than the oldest.
"""

from __future__ import annotations

from oldhost_sync.policy.changes import PriorityClass

OUTSTANDING, DEAD = "IS NULL", "= 'DEAD'"


def oldest_of(each: PriorityClass, outcome: str) -> str:
    """SQL: the id, or NULL, for the entity of the row `o` of `outbox_events`. `outcome`: OUTSTANDING or DEAD."""
    return (
        "(SELECT x.id FROM outbox_events x FORCE INDEX (ix_outbox_events_status) "
        f"WHERE x.host = o.host AND x.outcome {outcome} AND x.entity_type = o.entity_type "
        f"AND x.entity_id = o.entity_id AND x.priority_class = '{each.value}' ORDER BY x.id LIMIT 1)"
    )
