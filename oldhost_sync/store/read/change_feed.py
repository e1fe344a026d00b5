"""The feed of all fates, for applications and for traces: each once, in the order of the commits that decided them,
without locks and without a clock.

Neither ids nor times are in commit order: a transaction may get its id or time first and commit last, when a reader is
already past it, and a clock may be set back. So fates are numbered: a transaction that decides fates increases
`nonce_ledger.fate_sequence` and gives that number to each. It holds the row's lock until it has committed, so a reader
that sees a number sees all fates with smaller ones. A change that is retried loses its number, and appears again with
its next fate.

A fate that was decided without a number (a refused submission) gets one from the relay soon afterwards. Pruning
increases `feed_horizon`: a reader whose cursor is older has missed fates and gets an error.

A database that was restored, or a replica that was behind, gives the same numbers to other fates. So a cursor names the
last fate that its reader saw, and is valid only where that fate is: with its number, its change, and its time to the
microsecond.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import select, text
from sqlalchemy.engine import Connection, Row

from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.ledger.statements import CREATE_LEDGER
from oldhost_sync.store.outbox.outstanding_changes import REF, as_ref, unix_ms
from oldhost_sync.store.outbox.pending_fates import AT_ONCE, IDS_MAX, RAISE_SEQUENCE, SEQUENCE, listed, tried_at_once
from oldhost_sync.store.read.change_list import with_certainty
from oldhost_sync.store.tables import feed_horizon, nonce_ledger, outbox_events

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
# Later than all fates of one number.
END_US = 253_402_300_799_000_000
_CURSOR = re.compile(r"f([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,18})")


class FeedCursor(NamedTuple):
    """The last fate that was returned: its number, and its place among those with the same number."""

    sequence: int
    processed_at_us: int = END_US
    change_id: int = 0

    @property
    def processed_at(self) -> datetime:
        return EPOCH + self.processed_at_us * MICROSECOND

    @property
    def text(self) -> str:
        """As readers get it; `parse` reads it."""
        return f"f{self.sequence}.{self.processed_at_us}.{self.change_id}"

    @classmethod
    def parse(cls, text: str) -> FeedCursor:
        """ValueError for what is no cursor."""
        parts = _CURSOR.fullmatch(text)
        if parts is None or int(parts[2]) > END_US:
            raise ValueError("this is not a cursor of the feed")
        return cls(int(parts[1]), int(parts[2]), int(parts[3]))

    @classmethod
    def of(cls, row: dict[str, Any]) -> FeedCursor:
        return cls(row["fate_sequence"], (row["processed_at"] - EPOCH) // MICROSECOND, row["change_id"])


BEGINNING = FeedCursor(0, 0)


class CursorForgotten(StoreError):  # noqa: N818 - a name says what happened
    """Fates after the reader's cursor were pruned; `oldest` is where the feed begins now. A retry does not help."""

    def __init__(self, oldest: FeedCursor) -> None:
        super().__init__("fates after this cursor were deleted")
        self.oldest = oldest


class CursorUnknown(StoreError):  # noqa: N818 - a name says what happened
    """The fate that the reader saw last is not in this database, or was taken back: others may be missing or new.

    `oldest`: where the feed begins; `latest`: its end. A retry does not help.
    """

    def __init__(self, oldest: FeedCursor, latest: FeedCursor) -> None:
        super().__init__("the fate of this cursor is not in this database")
        self.oldest = oldest
        self.latest = latest


@dataclass(frozen=True, slots=True)
class FeedPage:
    """`rows`: in the order of their fates, and `places`: the cursor behind each. `more`: there is a next page already.
    `outstanding`: changes without a fate exist.
    """

    rows: list[dict[str, Any]]
    cursor: FeedCursor
    more: bool
    outstanding: bool
    places: tuple[FeedCursor, ...] = ()


# The outbox's columns that are shown, by their names in the feed.
_SHOWN = {
    "change_id": "id",
    **{name: name for name in ("idempotency_key", "entity_type", "entity_id", "event_type", "priority_class")},
    "accepted_at": "created_at",
    **{
        name: name
        for name in (
            "processed_at",
            "outcome",
            "nonce",
            "superseded_by",
            "error",
            "unproven",
            "fate_sequence",
            "source",
        )
    },
}
_LISTED = ", ".join(f"{column} AS {shown}" for shown, column in _SHOWN.items())
_PART = (
    f"(SELECT {_LISTED} FROM outbox_events FORCE INDEX (ix_outbox_events_feed) WHERE host = :host AND {{after}} "
    "ORDER BY fate_sequence, processed_at, id LIMIT :limit)"
)
# Each part reads the index in its order and stops at the limit, however many fates one number has.
_FEED = text(
    " UNION ALL ".join(
        _PART.format(after=after)
        for after in (
            "fate_sequence = :sequence AND processed_at = :at AND id > :id",
            "fate_sequence = :sequence AND processed_at > :at",
            "fate_sequence > :sequence",
        )
    )
    + " ORDER BY fate_sequence, processed_at, change_id LIMIT :limit"
).columns(*(outbox_events.c[column].label(shown) for shown, column in _SHOWN.items()))

_NEWEST = text(
    "SELECT fate_sequence, processed_at, id AS change_id FROM outbox_events FORCE INDEX (ix_outbox_events_feed) "
    "WHERE host = :host AND fate_sequence > 0 ORDER BY fate_sequence DESC, processed_at DESC, id DESC LIMIT 1"
).columns(processed_at=UtcDateTime())
_SEEN = text(
    "SELECT 1 FROM outbox_events WHERE id = :id AND host = :host AND fate_sequence = :sequence AND processed_at = :at"
)
_ACTED_ON = text("SELECT 1 FROM operator_audit WHERE host = :host AND change_id = :id AND created_at >= :at LIMIT 1")


def read_feed(connection: Connection, host: str, since: FeedCursor, *, limit: int) -> FeedPage:
    """The fates after `since`, at most `limit`; after BEGINNING, the oldest that are kept. Raises CursorForgotten or
    CursorUnknown.
    """
    values = {
        "host": host,
        "sequence": since.sequence,
        "at": since.processed_at.replace(tzinfo=None),
        "id": since.change_id,
        "limit": limit + 1,
    }
    rows = [dict(row._mapping) for row in connection.execute(_FEED, values)]  # noqa: SLF001
    forgotten = _forgotten(connection, host)  # after reading, so that pruning in the meantime is noticed
    if since != BEGINNING and since.sequence < forgotten:
        raise CursorForgotten(FeedCursor(forgotten))
    if since.sequence > forgotten and not _is_of_this_database(connection, host, since):
        raise CursorUnknown(FeedCursor(forgotten), latest_cursor(connection, host))
    page = [with_certainty(row) for row in rows[:limit]]
    places = tuple(FeedCursor.of(row) for row in page)
    cursor = places[-1] if places else max(since, FeedCursor(forgotten))
    for row in page:
        del row["fate_sequence"]
    return FeedPage(page, cursor, len(rows) > limit, _has_outstanding(connection, host), places)


def latest_cursor(connection: Connection, host: str) -> FeedCursor:
    """The end of the feed: fates after it are new."""
    newest = connection.execute(_NEWEST, {"host": host}).one_or_none()
    return FeedCursor(newest_number(connection, host)) if newest is None else FeedCursor.of(dict(newest._mapping))  # noqa: SLF001


def newest_number(connection: Connection, host: str) -> int:
    """The number of the last transaction that decided fates."""
    sequence = connection.execute(select(nonce_ledger.c.fate_sequence).where(nonce_ledger.c.host == host)).scalar()
    return int(sequence or 0)


def _is_of_this_database(connection: Connection, host: str, since: FeedCursor) -> bool:
    """Whether the reader's last fate was decided here. An operator's act may have taken it back since: a retry, or a
    discard, which is a fate of its own.
    """
    if not since.change_id:  # there was no fate yet
        return since.sequence <= newest_number(connection, host)
    values = {
        "host": host,
        "sequence": since.sequence,
        "at": since.processed_at.replace(tzinfo=None),
        "id": since.change_id,
    }
    return any(connection.execute(query, values).first() is not None for query in (_SEEN, _ACTED_ON))


def _forgotten(connection: Connection, host: str) -> int:
    """The highest number of a pruned fate; 0 when there is none."""
    pruned = connection.execute(select(feed_horizon.c.pruned_sequence).where(feed_horizon.c.host == host)).scalar()
    return int(pruned or 0)


def _has_outstanding(connection: Connection, host: str) -> bool:
    query = select(outbox_events.c.id).where(outbox_events.c.host == host, outbox_events.c.processed_at.is_(None))
    return connection.execute(query.limit(1)).first() is not None


# ----------------------------------------------------------------------------------------------- fates without a number

_WITHOUT = (
    "FROM outbox_events FORCE INDEX (ix_outbox_events_feed) "
    "WHERE host = %s AND fate_sequence IS NULL AND processed_at > '1970-01-01'"
)
# Reads one entry of each host, from the end of those without a number: changes without a fate come first there. EXISTS
# would read all of them.
_HOSTS = (
    "SELECT DISTINCT host FROM pending_fates UNION SELECT l.host FROM relay_lease l WHERE (SELECT o.processed_at "
    "FROM outbox_events o FORCE INDEX (ix_outbox_events_feed) "
    "WHERE o.host = l.host AND o.fate_sequence IS NULL ORDER BY o.processed_at DESC LIMIT 1) IS NOT NULL"
)
_UNNUMBERED = f"SELECT id {_WITHOUT} ORDER BY processed_at, id LIMIT %s"
_TAKE = (
    "SELECT id FROM outbox_events WHERE id IN ({ids}) AND fate_sequence IS NULL AND processed_at IS NOT NULL "
    "FOR UPDATE SKIP LOCKED"
)
_NUMBER = f"{AT_ONCE}UPDATE outbox_events SET fate_sequence = {SEQUENCE} WHERE id IN ({{ids}})"


def hosts_with_work(connection: Connection) -> list[str]:
    """Hosts with fates that are pending or have no number: one lookup for each host that a relay works for."""
    return [str(host) for host in connection.exec_driver_sql(_HOSTS).scalars().all()]


def number_fates(connection: Connection, host: str, limit: int) -> int:
    """Number at most `limit` fates (up to IDS_MAX) that have no number, the oldest first; returns how many.

    With none to number it costs one index lookup. The rows are locked before the ledger's row, whose holders never wait
    for an outbox row, so this can't deadlock.
    """
    unnumbered = connection.exec_driver_sql(_UNNUMBERED, (host, limit)).scalars().all()
    if not unnumbered:
        return 0
    taken = connection.exec_driver_sql(_TAKE.format(ids=listed(unnumbered))).scalars().all()
    if not taken:
        return 0
    connection.exec_driver_sql(CREATE_LEDGER, (host,))
    connection.exec_driver_sql(RAISE_SEQUENCE, (host,))
    return tried_at_once(connection, _NUMBER.format(ids=listed(taken)), ()) or 0


# --------------------------------------------------------------------------------------------------------- traced fates

# What the database has recorded about changes whose fates were decided recently, for their traces.
#
# Fates are read in the order of their numbers, up to one that is known to be committed: none is missed or read twice.
# Nothing is locked.

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
    rows = connection.execute(_FATES, {"host": host, "after": after, "upto": upto, "limit": FATES_MAX}).all()
    refs = {row.id: as_ref(row[:6]) for row in rows}
    superseded: dict[int, list[NamedChange]] = defaultdict(list)
    for row in rows:
        if row.superseded_by is not None:
            superseded[row.superseded_by].append(NamedChange(row.id, refs[row.id].accepted_at_ms))
    traced = [row for row in rows if is_traced(refs[row.id])]
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
