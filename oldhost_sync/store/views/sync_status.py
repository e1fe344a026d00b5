"""Whether OldHost has an entity's shown state: derived from the outbox when it is read, and not stored (I7).

To store it, each fate would have to wait for the entity's row, which applications may keep locked for long, while it
holds the lock of the ledger's row, which every operation of the host needs. Nor can a derived status be out of date.

| sync status   | when                                                                                              |
|---------------|---------------------------------------------------------------------------------------------------|
| SYNC_FAILED   | it has an undecided dead letter, or a discarded change whose state is still shown                 |
| PENDING_SYNC  | otherwise, while it has a change without a fate                                                   |
| SYNCED        | otherwise                                                                                         |

A discarded change no longer matters once a newer one of its event type was applied, and is about to be replaced while a
newer one waits. Each part is a lookup in `ix_outbox_events_status`.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import PriorityClass

PENDING_SYNC, SYNCED, SYNC_FAILED = "PENDING_SYNC", "SYNCED", "SYNC_FAILED"

_BY_STATUS = "FORCE INDEX (ix_outbox_events_status)"
# `one`: a table's alias; `host`, `kind` and `id`: the expressions that name the entity.
_ENTITY = "{{one}}.host = {host} AND {{one}}.entity_type = {kind} AND {{one}}.entity_id = {id}"
# All of them: a rule may have changed the event type's class since. Without them the index is not read by event type.
_CLASSES = ", ".join(f"'{each}'" for each in PriorityClass)
_STILL_SHOWN = (
    "NOT EXISTS (SELECT 1 FROM applied_states a WHERE a.host = g.host AND a.entity_type = g.entity_type "
    "AND a.entity_id = g.entity_id AND a.event_type = g.event_type AND a.change_id > g.id) "
    "AND NOT EXISTS (SELECT 1 FROM outbox_events n FORCE INDEX (ix_outbox_events_key) WHERE n.host = g.host "
    "AND n.entity_type = g.entity_type AND n.entity_id = g.entity_id AND n.processed_at IS NULL "
    f"AND n.priority_class IN ({_CLASSES}) AND n.event_type = g.event_type AND n.id > g.id)"
)


def status_expression(*, host: str, kind: str, id: str) -> str:  # noqa: A002 - the columns' own name
    """SQL for the sync status of the entity that the three expressions name."""
    entity = _ENTITY.format(host=host, kind=kind, id=id)

    def exists(table: str, one: str, condition: str) -> str:
        return f"EXISTS (SELECT 1 FROM {table} WHERE {entity.format(one=one)} AND {condition})"

    dead = exists(f"outbox_events d {_BY_STATUS}", "d", "d.outcome = 'DEAD'")
    dead_soon = exists("pending_fates p FORCE INDEX (ix_pending_fates_entity)", "p", "p.outcome = 'DEAD'")
    given_up = exists(f"outbox_events g {_BY_STATUS}", "g", f"g.outcome = 'DISCARDED' AND {_STILL_SHOWN}")
    waits = exists(
        f"outbox_events w {_BY_STATUS}",
        "w",
        "w.outcome IS NULL AND NOT EXISTS (SELECT 1 FROM pending_fates f WHERE f.host = w.host AND f.change_id = w.id)",
    )
    return (
        f"CASE WHEN {dead} OR {dead_soon} OR {given_up} THEN '{SYNC_FAILED}' "
        f"WHEN {waits} THEN '{PENDING_SYNC}' ELSE '{SYNCED}' END"
    )


_STATUS = text(f"SELECT {status_expression(host=':host', kind=':kind', id=':id')} AS sync_status")
_CANDIDATES = text(
    f"SELECT DISTINCT entity_type, entity_id FROM outbox_events {_BY_STATUS} "
    "WHERE host = :host AND (outcome IS NULL OR outcome IN ('DEAD', 'DISCARDED')) ORDER BY entity_type, entity_id"
)


def sync_status(connection: Connection, host: str, entity_type: str, entity_id: str) -> str:
    """The sync status of an entity with at least one accepted change."""
    return str(connection.execute(_STATUS, {"host": host, "kind": entity_type, "id": entity_id}).scalar_one())


def not_synced(connection: Connection, host: str) -> dict[tuple[str, str], str]:
    """All entities whose shown state OldHost lacks, with their sync status. For tools: its cost is unbounded."""
    found = {}
    for entity_type, entity_id in connection.execute(_CANDIDATES, {"host": host}).all():
        status = sync_status(connection, host, entity_type, entity_id)
        if status != SYNCED:
            found[entity_type, entity_id] = status
    return found
