"""The books: how many changes were accepted, and which fates they have (invariant I5).

Counting the whole outbox takes 0.2 s per million changes. So the numbers of final fates are stored with the relay's
cursor over the fates, in `counted_fates`, and updated when it moves. Fates beyond the cursor, dead letters, and changes
without a fate are counted at each query.

The stored numbers are used only if they can't be out of date: the cursor was moved together with them (else it differs
from `booked_sequence`), and no halt was resolved since (`resolved_epoch`: only a resolve takes back final fates).
Otherwise the whole outbox is counted, until :func:`check_books` has stored new numbers. Each statement reads one
snapshot, so its numbers are consistent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection, Row

from oldhost_sync.store.tables import OUTCOMES

# An operator may still decide about a dead letter.
FINAL = tuple(outcome for outcome in OUTCOMES if outcome != "DEAD")

# Each part returns rows of its name, an outcome (NULL: none yet) and the number of changes.
_RELIED_ON = (
    "FROM counted_fates c LEFT JOIN nonce_ledger n ON n.host = c.host WHERE c.host = :host "
    "AND c.booked_sequence = c.sequence AND c.resolved_epoch = COALESCE(n.resolved_epoch, 0)"
)
_COUNTED = " UNION ALL ".join(
    f"SELECT 'counted' AS part, '{each}' AS outcome, c.{each.lower()} AS changes {_RELIED_ON}" for each in FINAL
)
_BY_FATE = "FORCE INDEX (ix_outbox_events_feed)"
_SINCE = (
    f"SELECT 'since', o.outcome, COUNT(*) FROM counted_fates c STRAIGHT_JOIN outbox_events o {_BY_FATE} "
    "ON o.host = c.host AND o.fate_sequence > c.sequence WHERE c.host = :host AND o.outcome <> 'DEAD' "
    f"GROUP BY o.outcome UNION ALL SELECT 'since', o.outcome, COUNT(*) FROM outbox_events o {_BY_FATE} "
    "WHERE o.host = :host AND o.fate_sequence IS NULL AND o.processed_at > '1970-01-01' AND o.outcome <> 'DEAD' "
    "GROUP BY o.outcome"
)
_BY_OUTCOME = "FROM outbox_events o FORCE INDEX (ix_outbox_events_outcome) WHERE o.host = :host"
_UNDECIDED = (
    f"SELECT 'undecided', NULL, COUNT(*) {_BY_OUTCOME} AND o.outcome IS NULL "
    f"UNION ALL SELECT 'undecided', 'DEAD', COUNT(*) {_BY_OUTCOME} AND o.outcome = 'DEAD'"
)
_WHOLE = f"SELECT 'whole' AS part, o.outcome, COUNT(*) AS changes {_BY_OUTCOME} GROUP BY o.outcome"
_UNDER_WAY = (
    "SELECT 'pending', p.outcome, COUNT(*) FROM pending_fates p WHERE p.host = :host GROUP BY p.outcome "
    "UNION ALL SELECT 'in flight', NULL, COUNT(*) FROM nonce_requests r FORCE INDEX (ix_nonce_requests_status) "
    "JOIN outbox_events o ON o.id = r.change_id WHERE r.host = :host AND r.status IN ('RESERVED', 'SENT') "
    "AND o.processed_at IS NULL"
)
# -1: an operator's decision waits to be carried out, and may then take back fates.
_RESOLVED = (
    "SELECT 'resolved', NULL, IF(n.resolve_mode IS NULL, COALESCE(n.resolved_epoch, 0), -1) "
    "FROM counted_fates c LEFT JOIN nonce_ledger n ON n.host = c.host WHERE c.host = :host"
)

_COUNT_ALL = text(f"{_WHOLE} UNION ALL {_UNDER_WAY}")
_COUNT_FEW = text(f"{_COUNTED} UNION ALL {_SINCE} UNION ALL {_UNDECIDED} UNION ALL {_UNDER_WAY}")
_COMPARE = text(f"{_COUNTED} UNION ALL {_SINCE} UNION ALL {_WHOLE} UNION ALL {_UNDER_WAY}")
_COUNT_ANEW = text(f"{_WHOLE} UNION ALL {_SINCE} UNION ALL {_RESOLVED}")

_LOCK = text("SELECT sequence, booked_sequence FROM counted_fates WHERE host = :host FOR UPDATE")
_ADDED = ", ".join(f"{each.lower()} = {each.lower()} + :{each.lower()}" for each in FINAL)
# The cursor itself is assigned last: `booked_sequence` is compared with its old value.
_MOVE = text(
    f"UPDATE counted_fates SET booked_sequence = IF(booked_sequence = sequence, :upto, NULL), {_ADDED}, "
    "sequence = :upto WHERE host = :host"
)
_SUBTRACT = text(f"UPDATE counted_fates SET {_ADDED.replace('+', '-')} WHERE host = :host")
_KEEP = text(
    "UPDATE counted_fates SET booked_sequence = sequence, resolved_epoch = :resolved, "
    f"{', '.join(f'{each.lower()} = :{each.lower()}' for each in FINAL)} WHERE host = :host"
)


@dataclass(frozen=True, slots=True)
class Books:
    """Invariant I5 from the database: `accepted` equals the sum of the others, except `refused`, which counts apart."""

    accepted: int
    waiting: int
    in_flight: int
    applied: int
    superseded: int
    no_op: int
    stale: int
    dead: int
    discarded: int
    withdrawn: int
    refused: int

    @property
    def balance(self) -> bool:
        sent = self.applied + self.superseded + self.no_op + self.stale
        ended = sent + self.dead + self.discarded + self.withdrawn
        return self.accepted == self.waiting + self.in_flight + ended and self.waiting >= 0


def read_books(connection: Connection, host: str) -> Books:
    """The books from the stored numbers, or by counting the whole outbox if those can't be used."""
    return kept_books(connection, host) or count_books(connection, host)


def count_books(connection: Connection, host: str) -> Books:
    """The books by counting the whole outbox, for callers that must not rely on the stored numbers."""
    numbers = _read(connection, _COUNT_ALL, host)
    return _books(numbers["whole"], numbers)


def kept_books(connection: Connection, host: str) -> Books | None:
    """The books from the stored numbers; None if those can't be used now."""
    numbers = _read(connection, _COUNT_FEW, host)
    if "counted" not in numbers:
        return None
    return _books(_sum(numbers["counted"], numbers["since"], numbers["undecided"]), numbers)


def check_books(connection: Connection, host: str) -> int:
    """By how many changes the books are wrong: 0, or an invariant is broken. It counts the whole outbox, and corrects
    the stored numbers.
    """
    numbers = _read(connection, _COMPARE, host)
    wrong = max(0, -_books(numbers["whole"], numbers).waiting)
    if "counted" in numbers:
        counted = _sum(numbers["counted"], numbers["since"])
        off = sum(abs(numbers["whole"][outcome] - counted[outcome]) for outcome in FINAL)
        if not off:
            return wrong
        wrong += off
    _count_anew(connection, host)
    return wrong


def move_cursor(connection: Connection, host: str, upto: int, outcomes: Iterable[str]) -> None:
    """Move the cursor over the fates to `upto`. `outcomes`: of all fates that it passes. Its row must be locked."""
    connection.execute(_MOVE, _counts(Counter(outcomes)) | {"host": host, "upto": upto})


def forget_fates(connection: Connection, host: str, fates: Sequence[Row[Any]]) -> None:
    """Subtract deleted changes. `fates`: `outcome` and `fate_sequence` of those that this transaction has deleted."""
    if not fates:
        return
    cursor = connection.execute(_LOCK, {"host": host}).one_or_none()
    if cursor is None or cursor.booked_sequence is None:
        return
    booked = Counter(row.outcome for row in fates if row.fate_sequence and row.fate_sequence <= cursor.booked_sequence)
    connection.execute(_SUBTRACT, _counts(booked) | {"host": host})


def _count_anew(connection: Connection, host: str) -> None:
    """The cursor's row is locked for 0.2 s per million changes: only the relay's own duties wait for it."""
    if connection.execute(_LOCK, {"host": host}).one_or_none() is None:
        return
    numbers = _read(connection, _COUNT_ANEW, host)
    counts = Counter(numbers["whole"])
    counts.subtract(numbers["since"])
    connection.execute(_KEEP, _counts(counts) | {"host": host, "resolved": numbers["resolved"][None]})


def _read(connection: Connection, statement: Any, host: str) -> defaultdict[str, Counter[str | None]]:
    numbers: defaultdict[str, Counter[str | None]] = defaultdict(Counter)
    for part, outcome, changes in connection.execute(statement, {"host": host}):
        numbers[part][outcome] += int(changes)
    return numbers


def _books(outbox: Counter[str | None], numbers: defaultdict[str, Counter[str | None]]) -> Books:
    """`outbox`: its changes by outcome. A pending fate counts as a fate, though it is not in the outbox yet."""
    by_outcome, pending = _sum(outbox, numbers["pending"]), numbers["pending"].total()
    in_flight = numbers["in flight"][None]
    ended = {outcome.lower(): by_outcome[outcome] for outcome in OUTCOMES}
    accepted = by_outcome.total() - pending - ended["refused"]
    waiting = by_outcome[None] - pending - in_flight
    return Books(accepted=accepted, waiting=waiting, in_flight=in_flight, **ended)


def _sum(*parts: Counter[str | None]) -> Counter[str | None]:
    total: Counter[str | None] = Counter()
    for part in parts:
        total.update(part)
    return total


def _counts(by_outcome: Counter[Any]) -> dict[str, int]:
    return {outcome.lower(): by_outcome[outcome] for outcome in FINAL}
