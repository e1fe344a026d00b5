"""What the database has recorded about changes whose fates were decided recently, for their traces.

Fates are read in the order of their numbers, up to one that is known to be committed: none is missed or read twice.
Nothing is locked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection, Row

from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.store.outbox.pending_fates import IDS_MAX, listed
from oldhost_sync.store.outbox.relay_queue import REF, as_ref, unix_ms
from oldhost_sync.store.read.change_feed import EPOCH, MICROSECOND

# More fates than this in one read come from a mass decision; the rest is not traced.
FATES_MAX = 5_000

# Fates decided this long ago have been traced by the relay before this one, if there was one.
NEWS_SECONDS = 60

_BEFORE_NEWS = text(
    "SELECT MAX(o.fate_sequence) FROM outbox_events o FORCE INDEX (ix_outbox_events_feed) WHERE o.host = :host "
    "AND o.fate_sequence > :floor AND o.fate_sequence <= :newest "
    f"AND o.processed_at < UTC_TIMESTAMP(6) - INTERVAL {NEWS_SECONDS} SECOND"
)
_FATES = text(
    f"SELECT {REF}, o.relayed_at, o.processed_at, o.outcome, o.nonce, o.superseded_by, s.created_at AS successor_at "
    "FROM outbox_events o FORCE INDEX (ix_outbox_events_feed) LEFT JOIN outbox_events s ON s.id = o.superseded_by "
    "WHERE o.host = :host AND o.fate_sequence > :after AND o.fate_sequence <= :upto "
    "ORDER BY o.fate_sequence, o.processed_at, o.id LIMIT :limit"
)
_NONCES = (
    "SELECT change_id, nonce, epoch, sends, sent_at, completed_at FROM {table} WHERE host = %s AND change_id IN ({ids})"
)
_ACTS = (
    "SELECT change_id, action, created_at FROM operator_audit FORCE INDEX (ix_operator_audit_change) "
    "WHERE host = %s AND change_id IN ({ids}) AND action IN ('retry', 'discard', 'confirm') ORDER BY id"
)


@dataclass(frozen=True, slots=True)
class NamedChange:
    """What identifies a change for ever."""

    change_id: int
    accepted_at_ms: int


@dataclass(frozen=True, slots=True)
class HeldNonce:
    """A nonce that a change held, as recorded in the ledger; times in microseconds since 1970."""

    nonce: int
    epoch: int
    sends: int
    sent_us: int | None
    completed_us: int | None


@dataclass(frozen=True, slots=True)
class Act:
    """An operator's `retry`, `discard` or `confirm`, which ended an earlier fate."""

    action: str
    at_us: int


@dataclass(frozen=True, slots=True)
class TracedFate:
    """A change with a fate, and its recorded times in microseconds since 1970. `successor`: the change that superseded
    it. `superseded`: the changes that it superseded. `nonces`: those that it held, in the order of their sends.
    """

    ref: ChangeRef
    accepted_us: int
    relayed_us: int | None
    decided_us: int
    outcome: str
    nonce: int | None = None
    successor: NamedChange | None = None
    superseded: tuple[NamedChange, ...] = ()
    nonces: tuple[HeldNonce, ...] = ()
    act: Act | None = None


def before_news(connection: Connection, host: str, newest: int, looked_at_max: int) -> int:
    """The number of the last fate that a starting relay need not trace, because it is older than NEWS_SECONDS; searched
    in the last `looked_at_max` numbers up to `newest`.
    """
    floor = max(0, newest - looked_at_max)
    last: int | None = connection.execute(_BEFORE_NEWS, {"host": host, "floor": floor, "newest": newest}).scalar()
    return floor if last is None else last


def read_traced_fates(
    connection: Connection, host: str, after: int, upto: int, is_traced: Callable[[ChangeRef], bool]
) -> list[TracedFate]:
    """The fates of traced changes with numbers above `after`, up to `upto`."""
    found = connection.execute(_FATES, {"host": host, "after": after, "upto": upto, "limit": FATES_MAX}).all()
    refs = {row.id: as_ref(row[:6]) for row in found}
    superseded: dict[int, list[NamedChange]] = defaultdict(list)
    for row in found:
        if row.superseded_by is not None:
            superseded[row.superseded_by].append(NamedChange(row.id, refs[row.id].accepted_at_ms))
    traced = [row for row in found if is_traced(refs[row.id])]
    ids = [row.id for row in traced]
    nonces, acts = _nonces(connection, host, ids), _acts(connection, host, ids)
    return [
        TracedFate(
            ref=refs[row.id],
            accepted_us=_us(row.created_at),
            relayed_us=None if row.relayed_at is None else _us(row.relayed_at),
            decided_us=_us(row.processed_at),
            outcome=row.outcome,
            nonce=row.nonce,
            successor=_successor(row),
            superseded=tuple(superseded[row.id]),
            nonces=tuple(nonces[row.id]),
            act=acts.get(row.id),
        )
        for row in traced
    ]


def _successor(row: Row[Any]) -> NamedChange | None:
    return None if row.successor_at is None else NamedChange(row.superseded_by, unix_ms(row.successor_at))


def _nonces(connection: Connection, host: str, change_ids: Sequence[int]) -> dict[int, list[HeldNonce]]:
    held: dict[int, list[HeldNonce]] = defaultdict(list)
    for table in ("nonce_requests_archive", "nonce_requests"):
        for row in _of_changes(connection, _NONCES.replace("{table}", table), host, change_ids):
            sent, completed = (None if at is None else _us(at) for at in (row.sent_at, row.completed_at))
            held[row.change_id].append(HeldNonce(row.nonce, row.epoch, row.sends, sent, completed))
    return held


def _acts(connection: Connection, host: str, change_ids: Sequence[int]) -> dict[int, Act]:
    rows = _of_changes(connection, _ACTS, host, change_ids)
    return {row.change_id: Act(row.action, _us(row.created_at)) for row in rows}


def _of_changes(connection: Connection, query: str, host: str, change_ids: Sequence[int]) -> list[Row[Any]]:
    rows: list[Row[Any]] = []
    for start in range(0, len(change_ids), IDS_MAX):
        ids = listed(change_ids[start : start + IDS_MAX])
        rows += connection.exec_driver_sql(query.replace("{ids}", ids), (host,)).all()
    return rows


def _us(stored: datetime) -> int:
    return (stored.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
