"""What a change gets when it is reserved: a nonce bound to its bytes, a fate that needs no nonce, or a wait for others.

In this order: it holds a nonce in doubt → the same bytes again (trap 15) · it has a fate → that fate · older than what
OldHost has for its key → STALE (trap 8) · equal to it, and nothing else of its entity was applied since → NO_OP · its
mapping makes no body of it, or one that is too large for OldHost → DEAD · else a fresh nonce.

A fresh nonce, or a NO_OP, only if nothing must reach OldHost before it: the rule against overtaking (I4). The writer
sends each entity's changes in order, as far as it has them. Some are only in the database: those missed between the
relay's signal and its mark, and those not read again yet after the writer lost its state. So a change waits while an
older change of its entity is outstanding and will be sent. It does not wait for an older change that holds a nonce (a
lower one, so it is sent first) or has a fate; for an LWW change whose key has a newer one, applied or outstanding (it
will not be sent); or for a TXN change held behind a dead letter older than itself. A TXN change behind an older dead
letter is held.

No old version is sent late either: an LWW change gets no nonce when a newer one of its key replaces it and newer
operations of its entity were applied or hold a nonce (a writer that reads page by page after a loss may not have read
the newer one yet).

Each query reads an index from one end and stops, however many changes or dead letters an entity has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection, Row

from oldhost_sync.drivers.mapping import ChangeContent, CodeMissing, Encoded, HostMapping, NotMapped, too_large
from oldhost_sync.oldhost.errors import InvariantViolated
from oldhost_sync.oldhost.ledger import Reserved
from oldhost_sync.policy.changes import ChangeRef, ChangeResult, Outcome, PriorityClass
from oldhost_sync.policy.limits import HOST_BODY_BYTES_MAX
from oldhost_sync.store.ledger.fates import UNKNOWN, Ending
from oldhost_sync.store.ledger.statements import LEDGER_ROW, LOCK_AND_READ, READ_LEDGER, LedgerRow
from oldhost_sync.store.mappings import LABEL
from oldhost_sync.store.outbox.outstanding_changes import DEAD, OUTSTANDING, REF, as_ref, oldest_of, unix_ms
from oldhost_sync.store.outbox.pending_fates import IS_PENDING, JOIN_PENDING, fate_columns
from oldhost_sync.store.tables import outbox_events


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change about to be sent, with the applied state of its key and the nonce that it may hold."""

    change_id: int
    idempotency_key: str
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: PriorityClass
    payload: dict[str, Any]
    outcome: str | None
    nonce: int | None
    error: str | None
    applied_change_id: int | None
    applied_hash: bytes | None
    other_applied_since: bool
    request_nonce: int | None
    request_status: str | None
    request_sends: int
    request_body: bytes | None
    request_mapping: str | None
    ref: ChangeRef

    @staticmethod
    def of(row: Row[Any]) -> Candidate:
        named = ("idempotency_key", "entity_type", "entity_id", "event_type", "outcome", "nonce", "error")
        return Candidate(
            change_id=row.id,
            **{name: getattr(row, name) for name in named},
            priority_class=PriorityClass(row.priority_class),
            payload=json.loads(row.payload),
            applied_change_id=row.applied_change_id,
            applied_hash=row.applied_hash,
            other_applied_since=bool(row.other_applied_since),
            request_nonce=row.request_nonce,
            request_status=row.status,
            request_sends=row.sends or 0,
            request_body=row.body,
            request_mapping=row.mapping,
            ref=as_ref((row.id, row.priority_class, row.entity_type, row.entity_id, row.event_type, row.created_at)),
        )


def entry_of(
    change_id: int,
    candidate: Candidate | None,
    nonce: int,
    mapping: HostMapping,
    in_flight: Callable[[Candidate], bool],
) -> tuple[Reserved | ChangeResult, Ending | None]:
    """What `change_id` becomes, and the ending to record for it, if this decides one. `nonce`: the next free one.
    Raises CodeMissing.

    `in_flight`: whether an operation of the candidate's entity is in flight, or gets its nonce just now.
    """
    if candidate is None:
        return ChangeResult(change_id, Outcome.DISCARDED.value, error="no such change in the outbox"), None
    if candidate.request_status == "SENT":
        return _bound(candidate, mapping), None
    if candidate.outcome is not None:
        return ChangeResult(change_id, candidate.outcome, candidate.nonce, candidate.error), None
    if candidate.request_status is not None:
        raise InvariantViolated(f"change {change_id} waits, yet has a nonce that is {candidate.request_status}")
    try:
        encoded, why = (
            mapping.encode(_change(candidate)),
            f"its operation is over OldHost's {HOST_BODY_BYTES_MAX} bytes",
        )
    except NotMapped as error:
        encoded, why = None, str(error)
    ending = _needless(candidate, None if encoded is None else encoded.state_hash, in_flight)
    if ending is None:
        if encoded is not None and not too_large(encoded.body):
            return Reserved.of(candidate, encoded, nonce=nonce, sends=0), None
        ending = Ending.of(candidate, Outcome.DEAD, error=why)
    return ChangeResult(change_id, ending.outcome.value, error=ending.error), ending


def is_missing(created_at_ms: int | None, accepted_at_ms: int | None) -> bool:
    """Whether the database lacks the change that the writer has, or has a different one under this id."""
    return accepted_at_ms is not None and created_at_ms != accepted_at_ms


def why_missing(change_id: int, created_at_ms: int | None) -> str:
    """The text of a halt. `created_at_ms`: of the change that now has this id, if there is one."""
    gone = "is not in the database"
    what = gone if created_at_ms is None else "is a different one in the database: its id was given out again"
    return (
        f"Change {change_id}, which the writer knows, {what}. Committed changes were lost, as by a fail-over to a "
        "replica that lacked the last ones, or by a restore. Compare with the applications' own data and have them "
        "submit again what is missing; then `resolve`, which gives up the lost changes."
    )


def _needless(candidate: Candidate, state_hash: bytes | None, in_flight: Callable[[Candidate], bool]) -> Ending | None:
    if candidate.priority_class is not PriorityClass.LWW or candidate.applied_change_id is None:
        return None
    if candidate.applied_change_id > candidate.change_id:
        why = f"the newer change {candidate.applied_change_id} was applied before it"
        return Ending.of(candidate, Outcome.STALE, error=why)
    # An operation of another key may have written the same fields since then (such as a status by `checked_out`):
    # OldHost's state is what it last applied for the entity, of any event type.
    is_equal = candidate.applied_hash == state_hash and not candidate.other_applied_since
    if is_equal and not in_flight(candidate):
        return Ending.of(candidate, Outcome.NO_OP)
    return None


def _bound(candidate: Candidate, mapping: HostMapping) -> Reserved:
    """The same bytes, whatever the mapping is by now."""
    if candidate.request_nonce is None or candidate.request_body is None:
        raise InvariantViolated(f"change {candidate.change_id} is bound, but has no nonce or no body")
    made_by = candidate.request_mapping or ""
    # What another mapping's bytes mean is not known any more: the next change of the key is sent even if it is equal.
    state_hash = _state_hash(mapping, candidate) if made_by == mapping.label else UNKNOWN
    encoded = Encoded(candidate.request_body, made_by, state_hash)
    return Reserved.of(candidate, encoded, nonce=candidate.request_nonce, sends=candidate.request_sends)


def _state_hash(mapping: HostMapping, candidate: Candidate) -> bytes:
    try:
        return mapping.encode(_change(candidate)).state_hash
    except (NotMapped, CodeMissing):  # code that is another one by now, or gone
        return UNKNOWN


def _change(candidate: Candidate) -> ChangeContent:
    named = ("entity_type", "entity_id", "event_type", "payload", "change_id", "idempotency_key")
    return ChangeContent(**{name: getattr(candidate, name) for name in named})


def is_new_loss(ledger: LedgerRow, change_id: int, accepted_at_ms: int) -> bool:
    """Whether no halt has ended since that change was accepted: the end of a halt gives up lost changes.

    By the clock, which may have been ahead at that end, and by the newest change that the writer had at the next
    opening (`losses_accepted_id`; None: there was none yet).
    """
    until, up_to = ledger.losses_accepted_at, ledger.losses_accepted_id
    return until is None or accepted_at_ms > unix_ms(until) or (up_to is not None and change_id > up_to)


# --------------------------------------------------------------------------------------------- what must be sent before

# The most refs of older changes, and the most dead letters, in one answer: the first ones are enough to continue.
OLDER_MAX = 100
DEAD_MAX = 20

_OLDEST_BY_CLASS = ", ".join(
    f"{oldest_of(cls, outcome)} AS {name}_{cls.value.lower()}"
    for name, outcome in (("older", OUTSTANDING), ("dead", DEAD))
    for cls in PriorityClass
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
# Whether newer operations of its entity were applied, or hold a nonce.
IS_PASSED = (
    "(EXISTS (SELECT 1 FROM applied_states n FORCE INDEX (PRIMARY) WHERE n.host = o.host "
    "AND n.entity_type = o.entity_type AND n.entity_id = o.entity_id AND n.change_id > o.id) "
    f"OR {_IS_NEWER_BOUND})"
)
# For a candidate `o`: by class, its entity's oldest outstanding change and oldest dead letter.
OLDEST = (
    f"{_OLDEST_BY_CLASS}, (SELECT MIN(p.change_id) FROM pending_fates p WHERE p.host = o.host "
    "AND p.entity_type = o.entity_type AND p.entity_id = o.entity_id AND p.outcome = 'DEAD' "
    f"AND p.change_id < o.id) AS dead_pending, {IS_PASSED} AS is_passed"
)
# The locked ledger's row beside each change, and once if there is none.
_CANDIDATES = (
    "SELECT l.*, o.id, o.idempotency_key, o.entity_type, o.entity_id, o.event_type, o.payload, o.priority_class, "
    "o.created_at, "
    f"{fate_columns('outcome', 'nonce', 'error')}, a.change_id AS applied_change_id, a.payload_hash AS applied_hash, "
    "EXISTS (SELECT 1 FROM applied_states n FORCE INDEX (PRIMARY) WHERE n.host = a.host "
    "AND n.entity_type = a.entity_type AND n.entity_id = a.entity_id AND n.nonce > a.nonce) AS other_applied_since, "
    f"r.nonce AS request_nonce, r.status, r.sends, r.body, r.mapping, {LABEL} AS mapping_now, {OLDEST} "
    f"FROM ({READ_LEDGER}) l LEFT JOIN outbox_events o FORCE INDEX (PRIMARY) ON o.host = %s AND o.id IN ({{ids}}) "
    "LEFT JOIN applied_states a FORCE INDEX (PRIMARY) ON a.host = o.host AND a.entity_type = o.entity_type "
    "AND a.entity_id = o.entity_id AND a.event_type = o.event_type "
    f"{LEDGER_ROW}{JOIN_PENDING}"
)
CANDIDATES = LOCK_AND_READ.format(select=_CANDIDATES)
HAS_NONCE = (
    "((SELECT r.nonce FROM nonce_requests r FORCE INDEX (ix_nonce_requests_change) "
    "WHERE r.host = o.host AND r.change_id = o.id LIMIT 1) IS NOT NULL)"
)
_ENTITY = "o.host = %s AND o.entity_type = %s AND o.entity_id = %s"
_OLDER_OF_CLASS = (
    f"SELECT {REF} FROM outbox_events o FORCE INDEX (ix_outbox_events_status) WHERE {_ENTITY} AND o.outcome IS NULL "
    f"AND o.priority_class = %s AND o.id < %s AND NOT {HAS_NONCE} AND NOT {IS_PENDING} ORDER BY o.id LIMIT %s"
)
_NEXT_KEY = (
    f"SELECT o.event_type FROM outbox_events o FORCE INDEX (ix_outbox_events_key) WHERE {_ENTITY} "
    "AND o.processed_at IS NULL AND o.priority_class = 'LWW' AND o.event_type > %s ORDER BY o.event_type LIMIT 1"
)
_NEWEST_OF_KEY = (
    f"SELECT {REF}, {HAS_NONCE} AS has_nonce, EXISTS (SELECT 1 FROM applied_states a WHERE a.host = o.host "
    "AND a.entity_type = o.entity_type AND a.entity_id = o.entity_id AND a.event_type = o.event_type "
    "AND a.change_id > o.id) AS is_stale FROM outbox_events o FORCE INDEX (ix_outbox_events_key) "
    f"WHERE {_ENTITY} AND o.processed_at IS NULL AND o.event_type = %s AND o.priority_class = 'LWW' "
    f"AND NOT {IS_PENDING} ORDER BY o.id DESC LIMIT 1"
)
_DEAD = (
    f"SELECT o.id FROM outbox_events o WHERE {_ENTITY} AND o.outcome = 'DEAD' AND o.id < %s "
    "AND o.priority_class = '{cls}' ORDER BY o.id LIMIT %s"
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
        oldest_dead = min((letter for letter in dead if _is_older(letter, row)), default=None)
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
        return any(self._entity(other) == self._entity(row) for other in newer)

    def _older(self, row: Row[Any], cls: PriorityClass, dead: int | None = None) -> list[ChangeRef]:
        """Those older than the change, or than its dead letter: read once for all candidates of the entity, so that the
        first OLDER_MAX are there even if all candidates are among them.
        """
        of_entity = self._of_entity[self._entity(row)]
        values = (*self._entity(row), cls.value, dead or max(of_entity), OLDER_MAX + len(of_entity))
        if values not in self._outstanding:
            rows = self._connection.exec_driver_sql(_OLDER_OF_CLASS, values)
            self._outstanding[values] = [as_ref(older) for older in rows]
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
                newest = self._newest_of_key(row, event_type)
                if newest is not None and not newest.has_nonce and not newest.is_stale:
                    refs.append(as_ref(newest[:6]))  # the first six columns are a ref's
        return [ref for ref in self._newest_to_send[entity] if ref.change_id < row.id]

    def _newest_of_key(self, row: Row[Any], event_type: str) -> Row[Any] | None:
        return self._connection.exec_driver_sql(_NEWEST_OF_KEY, (*self._entity(row), event_type)).one_or_none()

    def _dead(self, row: Row[Any]) -> list[int]:
        ids: list[int] = [] if row.dead_pending is None else [row.dead_pending]
        for cls in PriorityClass:
            statement = _DEAD.format(cls=cls.value)
            ids += self._connection.exec_driver_sql(statement, (*self._entity(row), row.id, DEAD_MAX)).scalars().all()
        return sorted(ids)[:DEAD_MAX]

    def _is_retried(self, change_id: int) -> bool:
        return bool(self._connection.exec_driver_sql(_IS_RETRIED, (self._host, change_id, RETRIED)).scalar())

    def _entity(self, row: Row[Any]) -> tuple[str, str, str]:
        return self._host, row.entity_type, row.entity_id


def _is_older(change_id: int | None, row: Row[Any]) -> bool:
    return change_id is not None and change_id < row.id


# ------------------------------------------------------------------------------------------------------ missing changes

# As many as one signal has.
IDS_AT_ONCE = 500


def missing_changes(connection: Connection, host: str, refs: Sequence[ChangeRef]) -> list[ChangeRef]:
    """Those of `refs` that are missing, or whose id now belongs to another change, in the same order."""
    missing = []
    for start in range(0, len(refs), IDS_AT_ONCE):
        asked = refs[start : start + IDS_AT_ONCE]
        events = outbox_events.c
        statement = select(events.id, events.created_at).where(
            events.host == host, events.id.in_([ref.change_id for ref in asked])
        )
        created = {change_id: unix_ms(at) for change_id, at in connection.execute(statement)}
        missing += [ref for ref in asked if is_missing(created.get(ref.change_id), ref.accepted_at_ms)]
    return missing
