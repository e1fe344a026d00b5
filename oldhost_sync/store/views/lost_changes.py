"""Which of the given changes are not in the database: after a restore, or a fail-over to a replica that lacked the last
commits.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.store.ledger.reservation import was_lost
from oldhost_sync.store.outbox.relay_queue import unix_ms
from oldhost_sync.store.tables import outbox_events

# As many as one signal has.
IDS_AT_ONCE = 500


def lost_changes(connection: Connection, host: str, refs: Sequence[ChangeRef]) -> list[ChangeRef]:
    """Those of `refs` that are missing, or whose id now belongs to another change, in the same order."""
    lost = []
    for start in range(0, len(refs), IDS_AT_ONCE):
        asked = refs[start : start + IDS_AT_ONCE]
        events = outbox_events.c
        statement = select(events.id, events.created_at).where(
            events.host == host, events.id.in_([ref.change_id for ref in asked])
        )
        created = {change_id: unix_ms(at) for change_id, at in connection.execute(statement)}
        lost += [ref for ref in asked if was_lost(created.get(ref.change_id), ref.accepted_at_ms)]
    return lost
