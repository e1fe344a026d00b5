"""Fates: what a used nonce proves about its operation, and what a fate changes in the transaction that decides it.

OldHost uses a nonce for an apply and for a rejection. A complete answer that the protocol does not have decides between
them as far as it can: 4xx is a rejection; any other leaves it open, and an operator decides. Only if no complete answer
arrived, the operation counts as applied, unconfirmed (I14).

A fate is written to the outbox, to the changes that it supersedes, and to the applied state. Every caller holds the
lock of the host's ledger row, so one host's fates are decided one after the other, each on a snapshot that has all
earlier ones. All operations of the host need that row, so nothing here waits for a row that another transaction may
lock: units and entities are not written (their sync status is derived when it is read), and if the outbox row is
locked, the fate is kept in `pending_fates` for a while.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import ChangeResult, Outcome, PriorityClass
from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
from oldhost_sync.store.columns import storable
from oldhost_sync.store.outbox.pending_fates import (
    AT_ONCE,
    IDS_MAX,
    KEEP_FATE,
    KEEP_FATES,
    NONE_PENDING,
    RAISE_SEQUENCE,
    SEQUENCE,
    listed,
    tried_at_once,
)

# Fates that supersede older LWW changes of the same key: the change was sent, or OldHost had its state already.
SUPERSEDING = frozenset({Outcome.APPLIED, Outcome.NO_OP, Outcome.DEAD})

_RECORD_FATE = (
    f"{AT_ONCE}UPDATE outbox_events SET outcome = %s, processed_at = UTC_TIMESTAMP(6), nonce = %s, error = %s, "
    f"unproven = %s, fate_sequence = {SEQUENCE} WHERE id = %s AND host = %s AND processed_at IS NULL AND {NONE_PENDING}"
)
# Read without a lock: a locking read would wait for a transaction that is recording a newer change.
_OLDER = (
    "SELECT id FROM outbox_events FORCE INDEX (ix_outbox_events_key) "
    "WHERE host = %s AND entity_type = %s AND entity_id = %s AND event_type = %s AND processed_at IS NULL "
    f"AND priority_class = 'LWW' AND id < %s AND {NONE_PENDING} ORDER BY id"
)
_SUPERSEDE = (
    f"{AT_ONCE}UPDATE outbox_events SET outcome = 'SUPERSEDED', processed_at = UTC_TIMESTAMP(6), superseded_by = %s, "
    f"fate_sequence = {SEQUENCE} WHERE id IN ({{ids}}) AND processed_at IS NULL"
)
_REMEMBER = (
    "INSERT INTO applied_states (host, entity_type, entity_id, event_type, change_id, payload_hash, nonce, applied_at) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE "
    "change_id = GREATEST(change_id, VALUES(change_id)), payload_hash = VALUES(payload_hash), "
    "nonce = VALUES(nonce), applied_at = VALUES(applied_at)"
)
# After a no-op, OldHost's state counts as that of the no-op: an older dead letter retried later is stale (I3).
_CONFIRM = (
    "UPDATE applied_states SET change_id = %s WHERE host = %s AND entity_type = %s AND entity_id = %s "
    "AND event_type = %s AND change_id < %s"
)


# No payload has this hash.
UNKNOWN = b""


@dataclass(frozen=True, slots=True)
class Ending:
    """A change and its fate. `payload_hash` and `nonce`: of the operation that OldHost applied. `unproven`: its nonce
    was used, and no answer says whether the operation was applied.
    """

    change_id: int
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: PriorityClass
    outcome: Outcome
    nonce: int | None = None
    error: str | None = None
    payload_hash: bytes | None = None
    unproven: bool = False

    @staticmethod
    def of(change: Any, outcome: Outcome, *, nonce: int | None = None, error: str | None = None) -> Ending:
        """`change`: any object with a change's columns, such as an operation or a candidate."""
        named = {name: getattr(change, name) for name in ("change_id", "entity_type", "entity_id", "event_type")}
        cls = PriorityClass(change.priority_class)
        return Ending(**named, priority_class=cls, outcome=outcome, nonce=nonce, error=error)

    @staticmethod
    def applied(change: Any) -> Ending:
        """`change` with the `nonce` and the `body` that OldHost has applied."""
        ending = Ending.of(change, Outcome.APPLIED, nonce=change.nonce)
        return replace(ending, payload_hash=hash_of_body(change.body))

    @staticmethod
    def unconfirmed(change: Any) -> Ending:
        """OldHost has used the nonce, but its answer was lost and may have been a rejection. So OldHost's state is
        unknown, and the next change of the key is always sent.
        """
        ending = Ending.of(change, Outcome.APPLIED, nonce=change.nonce)
        return replace(ending, payload_hash=UNKNOWN, unproven=True)

    @staticmethod
    def unsure(change: Any, error: str) -> Ending:
        """OldHost has used the nonce, and its answer says neither applied nor rejected: an operator decides. Until then
        OldHost's state is unknown.
        """
        ending = Ending.of(change, Outcome.DEAD, nonce=change.nonce, error=error)
        return replace(ending, payload_hash=UNKNOWN, unproven=True)


def record_fate(connection: Connection, host: str, ending: Ending, *, numbered: bool = False) -> bool:
    """Record `ending` and its consequences; False, and nothing is changed, when the change has a fate already.

    The caller holds the lock of the ledger row; nothing here waits for another lock. `numbered`: the caller has
    increased the ledger's `fate_sequence` in this transaction (:data:`RAISE_SEQUENCE`).
    """
    if not numbered:
        connection.exec_driver_sql(RAISE_SEQUENCE, (host,))
    if not _record_outcome(connection, host, ending):
        return False
    key = (host, ending.entity_type, ending.entity_id, ending.event_type)
    if ending.priority_class is PriorityClass.LWW and ending.outcome in SUPERSEDING:
        _supersede_older(connection, ending.change_id, key)
    if ending.outcome is Outcome.APPLIED or ending.unproven:
        remember_applied(connection, host, ending)
    elif ending.outcome is Outcome.NO_OP:
        connection.exec_driver_sql(_CONFIRM, (ending.change_id, *key, ending.change_id))
    return True


def remember_applied(connection: Connection, host: str, ending: Ending) -> None:
    """Record OldHost's state of this key: later equal changes are no-ops, older ones are stale (trap 8)."""
    key = (host, ending.entity_type, ending.entity_id, ending.event_type)
    connection.exec_driver_sql(_REMEMBER, (*key, ending.change_id, ending.payload_hash, ending.nonce))


def payload_hash(payload: Mapping[str, Any]) -> bytes:
    """Equal for equal JSON values."""
    canonical = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).digest()


def hash_of_body(body: bytes) -> bytes:
    """The payload's hash, from the body of an operation."""
    return payload_hash(json.loads(body)["payload"])


def shortened(text: str | None) -> str | None:
    """Cut to what the text columns can store."""
    return None if text is None else storable(text, TEXT_LENGTH_MAX)


def _record_outcome(connection: Connection, host: str, ending: Ending) -> bool:
    outcome, error = ending.outcome.value, shortened(ending.error)
    where = (ending.change_id, host)
    changed = tried_at_once(connection, _RECORD_FATE, (outcome, ending.nonce, error, ending.unproven, *where))
    if changed is None:
        kept = (outcome, ending.nonce, None, error, ending.unproven)
        changed = connection.exec_driver_sql(KEEP_FATE, (*kept, *where)).rowcount
    return changed == 1


def _supersede_older(connection: Connection, change_id: int, key: tuple[str, str, str, str]) -> None:
    older = list(connection.exec_driver_sql(_OLDER, (*key, change_id)).scalars().all())
    for start in range(0, len(older), IDS_MAX):
        ids = listed(older[start : start + IDS_MAX])
        if tried_at_once(connection, _SUPERSEDE.format(ids=ids), (change_id,)) is None:
            connection.exec_driver_sql(KEEP_FATES.format(ids=ids), ("SUPERSEDED", None, change_id, None, False))


# ---------------------------------------------------------------------------------------------------------- used nonces

UNCONFIRMED = "unconfirmed: OldHost expected a later nonce, and its answer was lost"
# The first word of an unsure letter's text: such letters have groups and alerts of their own.
UNSURE = "unsure: "
ADOPTED = "counted as applied by an operator's decision"


@dataclass(frozen=True, slots=True)
class UsedNonce:
    """How the ledger's row ends (`status`, `answer`), and its change."""

    status: str
    answer: str
    ending: Ending

    @property
    def fate(self) -> ChangeResult:
        """For the writer, without OldHost's words: they may quote what was sent (I9)."""
        ending = self.ending
        error = None if ending.outcome is Outcome.APPLIED else "OldHost gave an answer that the protocol does not have"
        return ChangeResult(ending.change_id, ending.outcome.value, ending.nonce, error, unproven=ending.unproven)


def used(row: Any, otherwise: str = UNCONFIRMED, *, shared: bool = False) -> UsedNonce:
    """`row`: SENT, its nonce used (`statements.SENT_ROWS`). `otherwise`: why it counts as applied if no answer came.
    `shared`: another operation had the nonce before, and may have used it.
    """
    if not row.sends or row.said_send != row.sends:
        if shared:
            why = f"{UNSURE}its answer was lost, and another operation had nonce {row.nonce}, too"
            return UsedNonce("UNSURE", why, Ending.unsure(row, why))
        return UsedNonce("APPLIED", otherwise, Ending.unconfirmed(row))
    if 400 <= row.said_status < 500:
        ending = Ending.of(row, Outcome.DEAD, nonce=row.nonce, error=row.answer)
        return UsedNonce("FAILED", f"rejected: {row.answer}", ending)
    unsure = f"{UNSURE}{row.answer}"
    return UsedNonce("UNSURE", unsure, Ending.unsure(row, unsure))
