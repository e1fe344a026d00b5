"""What must reach OldHost before a change: the reservation's rule against overtaking (I4).

The writer sends each entity's changes in order, as far as it has them. Some are only in the database: those lost
between the relay's signal and its mark, and those not read again yet after the writer lost its state. So a change gets
no nonce, and is no NO_OP, while an older change of its entity is outstanding and will be sent. It does not wait for an
older change that holds a nonce (a lower one, so it is sent first) or has a fate; for an LWW change whose key has a
newer one, applied or outstanding (it will not be sent); or for a TXN change held behind a dead letter older than
itself. A TXN change behind an older dead letter is held.

No old version is sent late either: an LWW change gets no nonce when a newer one of its key replaces it and newer
operations of its entity were applied or hold a nonce (a writer that reads page by page after a loss may not have read
the newer one yet).

Each query reads an index from one end and stops, however many changes or dead letters an entity has.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.engine import Connection, Row

from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.store.outbox.oldest_change import DEAD, OUTSTANDING, oldest_of
from oldhost_sync.store.outbox.relay_queue import REF, as_ref

# The most refs of older changes, and the most dead letters, in one answer: the first ones are enough to continue.
OLDER_MAX = 100
DEAD_MAX = 20

_EACH = ", ".join(
    f"{oldest_of(each, outcome)} AS {name}_{each.value.lower()}"
    for name, outcome in (("older", OUTSTANDING), ("dead", DEAD))
    for each in PriorityClass
)
# The ledger keeps its rows as long as their changes: for a busy host 19 million rows in 90 days. A scalar subquery on a
# named index reads a few of them. EXISTS may be materialized, and a list of states is not read as a range where the
# host is that of `o`: both would read the host's whole ledger for each reservation.
_BOUND = (
    "(SELECT f.nonce FROM nonce_requests f FORCE INDEX (ix_nonce_requests_status) "
    "WHERE f.host = o.host AND f.status = '{status}' AND f.change_id > o.id AND (SELECT g.id FROM outbox_events g "
    "WHERE g.id = f.change_id AND g.entity_type = o.entity_type AND g.entity_id = o.entity_id) IS NOT NULL LIMIT 1) "
    "IS NOT NULL"
)
_IS_NEWER_BOUND = " OR ".join(_BOUND.format(status=status) for status in ("RESERVED", "SENT"))
# For a candidate `o`: by class, its entity's oldest outstanding change and oldest dead letter.
OLDEST = (
    f"{_EACH}, (SELECT MIN(p.change_id) FROM pending_fates p WHERE p.host = o.host AND p.entity_type = o.entity_type "
    "AND p.entity_id = o.entity_id AND p.outcome = 'DEAD' AND p.change_id < o.id) AS dead_pending, "
    "EXISTS (SELECT 1 FROM applied_states n FORCE INDEX (PRIMARY) WHERE n.host = o.host "
    "AND n.entity_type = o.entity_type AND n.entity_id = o.entity_id AND n.change_id > o.id) "
    f"OR {_IS_NEWER_BOUND} AS is_passed"
)
_HAS_NONCE = (
    "((SELECT r.nonce FROM nonce_requests r FORCE INDEX (ix_nonce_requests_change) "
    "WHERE r.host = o.host AND r.change_id = o.id LIMIT 1) IS NOT NULL)"
)
_HAS_FATE = "EXISTS (SELECT 1 FROM pending_fates p WHERE p.host = o.host AND p.change_id = o.id)"
_ENTITY = "o.host = %s AND o.entity_type = %s AND o.entity_id = %s"
_OLDER_OF_CLASS = (
    f"SELECT {REF} FROM outbox_events o FORCE INDEX (ix_outbox_events_status) WHERE {_ENTITY} AND o.outcome IS NULL "
    f"AND o.priority_class = %s AND o.id < %s AND NOT {_HAS_NONCE} AND NOT {_HAS_FATE} ORDER BY o.id LIMIT %s"
)
_NEXT_KEY = (
    f"SELECT o.event_type FROM outbox_events o FORCE INDEX (ix_outbox_events_key) WHERE {_ENTITY} "
    "AND o.processed_at IS NULL AND o.priority_class = 'LWW' AND o.event_type > %s ORDER BY o.event_type LIMIT 1"
)
_NEWEST_OF_KEY = (
    f"SELECT {REF}, {_HAS_NONCE} AS has_nonce, EXISTS (SELECT 1 FROM applied_states a WHERE a.host = o.host "
    "AND a.entity_type = o.entity_type AND a.entity_id = o.entity_id AND a.event_type = o.event_type "
    "AND a.change_id > o.id) AS is_stale FROM outbox_events o FORCE INDEX (ix_outbox_events_key) "
    f"WHERE {_ENTITY} AND o.processed_at IS NULL AND o.event_type = %s AND o.priority_class = 'LWW' "
    f"AND NOT {_HAS_FATE} ORDER BY o.id DESC LIMIT 1"
)
_DEAD = (
    f"SELECT o.id FROM outbox_events o WHERE {_ENTITY} AND o.outcome = 'DEAD' AND o.id < %s "
    "AND o.priority_class = '{each}' ORDER BY o.id LIMIT %s"
)
_IS_RETRIED = "SELECT EXISTS (SELECT 1 FROM nonce_requests_archive WHERE host = %s AND change_id = %s AND reason = %s)"
# A change that an operator retries is sent, whatever other dead letters its entity has.
RETRIED = "retried by an operator"


@dataclass(frozen=True, slots=True)
class Before:
    """What must be sent before a change. `older`: the first of these changes, oldest first. `dead`: the dead letters
    that it is held behind.

    `older` may instead be the change that is sent in its place: the newest of its key.
    """

    older: list[ChangeRef] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)


class Precedence:
    """What must be sent before each of `candidates` (rows with OLDEST). Use it under the ledger row's lock."""

    def __init__(self, connection: Connection, host: str, candidates: Sequence[Row[Any]]) -> None:
        self._connection = connection
        self._host = host
        self._rows: dict[int, Row[Any]] = {row.id: row for row in candidates}
        self._of_entity: dict[tuple[str, str, str], list[int]] = {}
        for row in candidates:
            self._of_entity.setdefault(self._entity(row), []).append(row.id)
        self._outstanding: dict[tuple[Any, ...], list[ChangeRef]] = {}
        self._newest_to_send: dict[tuple[str, str, str], list[ChangeRef]] = {}

    def forget_outstanding(self) -> None:
        """A candidate got a fate: what was read before is not true any more."""
        self._outstanding.clear()
        self._newest_to_send.clear()

    def before(self, change_id: int, binding: Collection[int]) -> Before | None:
        """None: nothing. `binding`: the changes that get their nonces in the same transaction, before it."""
        row = self._rows[change_id]
        dead = (row.dead_emergency, row.dead_txn, row.dead_lww, row.dead_pending)
        oldest_dead = min((each for each in dead if _is_older(each, row)), default=None)
        is_txn = row.priority_class == PriorityClass.TXN
        if is_txn and oldest_dead is not None and not self._is_retried(change_id):
            return Before(dead=self._dead(row))
        if row.priority_class == PriorityClass.LWW and (row.is_passed or self._is_passed_by(binding, row)):
            newest = self._newest_of_key(row, row.event_type)
            if newest is not None and newest.id > row.id:
                return Before([as_ref(newest[:6])])  # the first six columns are a ref's
        older: list[ChangeRef] = []
        if _is_older(row.older_emergency, row):
            older += self._older(row, PriorityClass.EMERGENCY)
        if _is_older(row.older_txn, row):
            older += self._older(row, PriorityClass.TXN, oldest_dead)
        if _is_older(row.older_lww, row):
            older += self._newest_of_keys(row)
        older = sorted((ref for ref in older if ref.change_id not in binding), key=lambda ref: ref.change_id)
        return Before(older[:OLDER_MAX]) if older else None

    def _is_passed_by(self, binding: Collection[int], row: Row[Any]) -> bool:
        newer = (self._rows[change_id] for change_id in binding if change_id > row.id)
        return any((each.entity_type, each.entity_id) == (row.entity_type, row.entity_id) for each in newer)

    def _older(self, row: Row[Any], each: PriorityClass, dead: int | None = None) -> list[ChangeRef]:
        """Those older than the change, or than its dead letter: read once for all candidates of the entity, so that the
        first OLDER_MAX are there even if all candidates are among them.
        """
        of_entity = self._of_entity[self._entity(row)]
        values = (*self._entity(row), each.value, dead or max(of_entity), OLDER_MAX + len(of_entity))
        if values not in self._outstanding:
            found = self._connection.exec_driver_sql(_OLDER_OF_CLASS, values)
            self._outstanding[values] = [as_ref(one) for one in found]
        return [ref for ref in self._outstanding[values] if ref.change_id < row.id]

    def _newest_of_keys(self, row: Row[Any]) -> list[ChangeRef]:
        """The newest change of each LWW key of the entity, if it is older than the change and will be sent: read once
        for all candidates of the entity.
        """
        entity = self._entity(row)
        if entity not in self._newest_to_send:
            refs = self._newest_to_send[entity] = []
            event_type: str | None = ""
            while event_type := self._connection.exec_driver_sql(_NEXT_KEY, (*entity, event_type)).scalar():
                found = self._newest_of_key(row, event_type)
                if found is not None and not found.has_nonce and not found.is_stale:
                    refs.append(as_ref(found[:6]))  # the first six columns are a ref's
        return [ref for ref in self._newest_to_send[entity] if ref.change_id < row.id]

    def _newest_of_key(self, row: Row[Any], event_type: str) -> Row[Any] | None:
        return self._connection.exec_driver_sql(_NEWEST_OF_KEY, (*self._entity(row), event_type)).one_or_none()

    def _dead(self, row: Row[Any]) -> list[int]:
        ids: list[int] = [] if row.dead_pending is None else [row.dead_pending]
        for each in PriorityClass:
            statement = _DEAD.format(each=each.value)
            ids += self._connection.exec_driver_sql(statement, (*self._entity(row), row.id, DEAD_MAX)).scalars().all()
        return sorted(ids)[:DEAD_MAX]

    def _is_retried(self, change_id: int) -> bool:
        return bool(self._connection.exec_driver_sql(_IS_RETRIED, (self._host, change_id, RETRIED)).scalar())

    def _entity(self, row: Row[Any]) -> tuple[str, str, str]:
        return self._host, row.entity_type, row.entity_id


def _is_older(change_id: int | None, row: Row[Any]) -> bool:
    return change_id is not None and change_id < row.id
