"""All that follows from the end of a change, in the transaction that ends it: outbox, superseding, applied state, shadow.

Every caller holds the lock of the host's ledger row, so that the ends of one host's changes are decided one after the
other, each on a snapshot that has all earlier ones. Recording a change takes no such lock: it locks the entity's shadow
row. That is why a shadow becomes SYNCED only when its *newest* change, as read under that lock, is seen settled (I7,
trap 10): a change committed while the statement waited is newer than anything its snapshot shows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import Outcome, PriorityClass
from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
from oldhost_sync.store.text import storable

UNIT = "unit"
# What makes older LWW changes of the same key pointless: this one was sent, or OldHost had it already.
SUPERSEDING = frozenset({Outcome.APPLIED, Outcome.NO_OP, Outcome.DEAD})
# What OldHost now has.
SYNCING = frozenset({Outcome.APPLIED, Outcome.NO_OP})

_SETTLE = (
    "UPDATE outbox_events SET outcome = %s, processed_at = UTC_TIMESTAMP(6), nonce = %s, error = %s "
    "WHERE id = %s AND host = %s AND processed_at IS NULL"
)
_SUPERSEDE = (
    "UPDATE outbox_events SET outcome = 'SUPERSEDED', processed_at = UTC_TIMESTAMP(6), superseded_by = %s "
    "WHERE host = %s AND entity_type = %s AND entity_id = %s AND event_type = %s AND processed_at IS NULL "
    "AND priority_class = 'LWW' AND id < %s"
)
_REMEMBER = (
    "INSERT INTO applied_states (host, entity_type, entity_id, event_type, change_id, payload_hash, nonce, applied_at) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE "
    "change_id = GREATEST(change_id, VALUES(change_id)), payload_hash = VALUES(payload_hash), "
    "nonce = VALUES(nonce), applied_at = VALUES(applied_at)"
)
# A no-op says that OldHost's state is as new as itself: an older dead letter that is retried after it is stale (I3).
_CONFIRM = (
    "UPDATE applied_states SET change_id = %s WHERE host = %s AND entity_type = %s AND entity_id = %s "
    "AND event_type = %s AND change_id < %s"
)
# Assignments run from left to right, so `synced_at` sees the new `sync_status`.
_REFRESH = (
    "UPDATE {table} SET synced_change_id = NULLIF(GREATEST(COALESCE(synced_change_id, 0), %s), 0), "
    "sync_status = CASE WHEN EXISTS (SELECT 1 FROM outbox_events dead WHERE dead.host = %s AND dead.outcome = 'DEAD' "
    "AND dead.entity_type = %s AND dead.entity_id = %s) THEN 'SYNC_FAILED' "
    "WHEN EXISTS (SELECT 1 FROM outbox_events newest WHERE newest.id = {table}.newest_change_id "
    "AND newest.processed_at IS NOT NULL) AND NOT EXISTS (SELECT 1 FROM outbox_events waiting WHERE waiting.host = %s "
    "AND waiting.entity_type = %s AND waiting.entity_id = %s AND waiting.processed_at IS NULL) THEN 'SYNCED' "
    "ELSE 'PENDING_SYNC' END, "
    "synced_at = IF(sync_status = 'SYNCED', UTC_TIMESTAMP(6), synced_at), updated_at = UTC_TIMESTAMP(6) WHERE {key}"
)
_REFRESH_UNIT = _REFRESH.format(table="units", key="host = %s AND id = %s")
_REFRESH_ENTITY = _REFRESH.format(table="entities", key="host = %s AND entity_type = %s AND id = %s")


@dataclass(frozen=True, slots=True)
class Ending:
    """A change that ends: which one, of what, and how. `payload_hash` and `nonce` of what OldHost applied."""

    change_id: int
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: PriorityClass
    outcome: Outcome
    nonce: int | None = None
    error: str | None = None
    payload_hash: bytes | None = None

    @staticmethod
    def of(change: Any, outcome: Outcome, *, nonce: int | None = None, error: str | None = None) -> Ending:
        """`change`: whatever has a change's columns, an operation or a candidate for one."""
        return Ending(
            change_id=change.change_id,
            entity_type=change.entity_type,
            entity_id=change.entity_id,
            event_type=change.event_type,
            priority_class=PriorityClass(change.priority_class),
            outcome=outcome,
            nonce=nonce,
            error=error,
        )

    @staticmethod
    def applied(change: Any) -> Ending:
        """`change` with the `nonce` and the `body` that OldHost has applied."""
        ending = Ending.of(change, Outcome.APPLIED, nonce=change.nonce)
        return replace(ending, payload_hash=hash_of_body(change.body))


def settle(connection: Connection, host: str, ending: Ending) -> bool:
    """Record `ending` with all that follows; False when the change has a fate already (nothing of it is changed then).

    The caller holds the ledger row's lock.
    """
    if not _record_outcome(connection, host, ending):
        return False
    if ending.priority_class is PriorityClass.LWW and ending.outcome in SUPERSEDING:
        key = (host, ending.entity_type, ending.entity_id, ending.event_type)
        connection.exec_driver_sql(_SUPERSEDE, (ending.change_id, *key, ending.change_id))
    if ending.outcome is Outcome.APPLIED:
        remember_applied(connection, host, ending)
    elif ending.outcome is Outcome.NO_OP:
        key = (host, ending.entity_type, ending.entity_id, ending.event_type)
        connection.exec_driver_sql(_CONFIRM, (ending.change_id, *key, ending.change_id))
    synced = ending.change_id if ending.outcome in SYNCING else 0
    refresh_shadow(connection, host, ending.entity_type, ending.entity_id, synced_change_id=synced)
    return True


def remember_applied(connection: Connection, host: str, ending: Ending) -> None:
    """What OldHost has now for this key: later equal changes are no-ops, older ones are stale (trap 8)."""
    key = (host, ending.entity_type, ending.entity_id, ending.event_type)
    connection.exec_driver_sql(_REMEMBER, (*key, ending.change_id, ending.payload_hash, ending.nonce))


def refresh_shadow(
    connection: Connection, host: str, entity_type: str, entity_id: str, *, synced_change_id: int = 0
) -> None:
    """Bring `sync_status` in line with the outbox (I7): SYNC_FAILED while a dead letter is open, SYNCED only when
    the newest change is settled and none waits, PENDING_SYNC otherwise.
    """
    entity = (host, entity_type, entity_id)
    row = (host, entity_id) if entity_type == UNIT else entity
    statement = _REFRESH_UNIT if entity_type == UNIT else _REFRESH_ENTITY
    connection.exec_driver_sql(statement, (synced_change_id, *entity, *entity, *row))


def payload_hash(payload: Mapping[str, Any]) -> bytes:
    """Equal for equal JSON values, however they were written."""
    canonical = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).digest()


def hash_of_body(body: bytes) -> bytes:
    """The payload's hash of an operation as it was sent."""
    return payload_hash(json.loads(body)["payload"])


def shortened(text: str | None) -> str | None:
    """As the text columns hold it."""
    return None if text is None else storable(text, TEXT_LENGTH_MAX)


def _record_outcome(connection: Connection, host: str, ending: Ending) -> bool:
    values = (ending.outcome.value, ending.nonce, shortened(ending.error), ending.change_id, host)
    return connection.exec_driver_sql(_SETTLE, values).rowcount == 1
