"""What settlement files are made from, and which days have one.

**The operations that ended on a day**: every ended row of the ledger counts once, in whichever table it is: answered
operations by `completed_at`, those whose nonce was released without an answer by `archived_at`. A row keeps its time
when it moves to the archive, so a past day has the same records for ever. MariaDB hashes the bodies, so they don't
leave it.

**Settled days**: a row for each file that was written, in order and without a gap. It ties the folder to the database:
a file that was lost, replaced or written by a relay with another folder is noticed, and retention deletes only the
released days of the ledger.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from operator import attrgetter
from typing import Any

from sqlalchemy import TextClause, text
from sqlalchemy.engine import Connection, Row

# About 0.3 MB in memory and 10 ms of the database's time.
ROWS_AT_ONCE = 1_000


class _Source:
    """A table's index over the times at which its rows ended, read in that order."""

    def __init__(self, table: str, moment: str, only: str = "") -> None:
        rows = f"FROM {table} FORCE INDEX (ix_{table}_{moment.removesuffix('_at')}) WHERE host = :host{only}"
        self.page: TextClause = text(
            f"SELECT nonce, change_id, status, answer, {moment} AS at, SHA2(body, 256) AS body_sha256 {rows} "
            f"AND {moment} < :until AND {moment} >= :after AND ({moment} > :after OR nonce > :after_nonce) "
            f"ORDER BY {moment}, nonce LIMIT :rows"
        )
        self.first: TextClause = text(f"SELECT MIN({moment}) {rows} AND {moment} >= '1970-01-01'")


_SOURCES = (
    _Source("nonce_requests", "completed_at"),
    _Source("nonce_requests_archive", "completed_at"),
    _Source("nonce_requests_archive", "archived_at", " AND completed_at IS NULL"),
)
_OPEN = text(
    "SELECT COUNT(*) FROM nonce_requests FORCE INDEX (ix_nonce_requests_status) "
    "WHERE host = :host AND status IN ('RESERVED', 'SENT') AND created_at < :until"
)


@dataclass(frozen=True, slots=True, order=True)
class EndedOperation:
    """`at`: UTC, without a zone. `outcome`: applied (OldHost's answer), unconfirmed (OldHost used the nonce and its
    answer was lost, or counted as applied by an operator), rejected, unsure (its answer says neither), or unanswered
    (released, or undone before an answer was known).
    """

    at: datetime
    nonce: int
    change_id: int
    outcome: str
    body_sha256: str


def ended_on(connection: Connection, host: str, day: date) -> Iterator[EndedOperation]:
    """The operations that ended on that day (UTC), by time and nonce; read page by page, so that memory is bounded. The
    caller's transaction must keep to one snapshot (:func:`keep_one_snapshot`).
    """
    pages = [_read(connection, source, host, day) for source in _SOURCES]
    return heapq.merge(*pages, key=attrgetter("at", "nonce"))


def keep_one_snapshot(connection: Connection) -> None:
    """Call it first in a transaction: all its reads then see one snapshot. Takes no locks."""
    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def first_ended_on(connection: Connection, host: str) -> date | None:
    """The day on which the oldest stored operation ended."""
    times = [connection.execute(source.first, {"host": host}).scalar() for source in _SOURCES]
    oldest: datetime | None = min((moment for moment in times if moment is not None), default=None)
    return None if oldest is None else oldest.date()


def open_before(connection: Connection, host: str, day: date) -> int:
    """How many operations that were bound before the end of `day` have not ended yet."""
    return int(connection.execute(_OPEN, {"host": host, "until": end_of(day)}).scalar_one())


def end_of(day: date) -> datetime:
    """The first moment after the day, UTC, without a zone."""
    return datetime.combine(day + timedelta(days=1), time())


def _read(connection: Connection, source: _Source, host: str, day: date) -> Iterator[EndedOperation]:
    values: dict[str, Any] = {"host": host, "until": end_of(day), "rows": ROWS_AT_ONCE}
    after, nonce = datetime.combine(day, time()), -1
    while True:
        page = connection.execute(source.page, values | {"after": after, "after_nonce": nonce}).all()
        yield from map(_ended, page)
        if len(page) < ROWS_AT_ONCE:
            return
        after, nonce = page[-1].at, page[-1].nonce


def _ended(row: Row[Any]) -> EndedOperation:
    if row.status == "APPLIED":
        outcome = "applied" if row.answer == "applied" else "unconfirmed"
    else:
        outcome = {"FAILED": "rejected", "UNSURE": "unsure"}.get(row.status, "unanswered")
    return EndedOperation(row.at, row.nonce, row.change_id, outcome, row.body_sha256)


# --------------------------------------------------------------------------------------------------------- settled days

_ROW = "SELECT day, sha256, records, released_at FROM settled_days WHERE host = :host"
_LAST = text(f"{_ROW} ORDER BY day DESC LIMIT 1")
_ALL = text(f"{_ROW} ORDER BY day")
# Reads what is committed now, not the transaction's snapshot.
_ONE = text(f"{_ROW} AND day = :day FOR UPDATE")
# Two relays may write the same day: their files are equal, and so are their rows.
_ADD = text("INSERT IGNORE INTO settled_days (host, day, sha256, records) VALUES (:host, :day, :sha256, :records)")
_TO_RELEASE = text(f"{_ROW} AND released_at IS NULL AND day < :before ORDER BY day LIMIT 1")
_RELEASE = text(
    "UPDATE settled_days SET released_at = UTC_TIMESTAMP(6) WHERE host = :host AND day = :day AND released_at IS NULL"
)
# Days are released in order, so every day before the first unreleased one is released.
_RELEASED = text(
    "SELECT MAX(day) FROM settled_days WHERE host = :host AND released_at IS NOT NULL "
    "AND day < COALESCE((SELECT MIN(n.day) FROM settled_days n WHERE n.host = :host AND n.released_at IS NULL), "
    "'9999-12-31')"
)


@dataclass(frozen=True, slots=True)
class SettledDay:
    """`sha256_hex`: of the day's whole file. `released_at`: from when on retention may delete the operations in it."""

    day: date
    sha256_hex: str
    records: int
    released_at: datetime | None = None

    @staticmethod
    def of(row: Row[Any]) -> SettledDay:
        return SettledDay(row.day, bytes(row.sha256).hex(), int(row.records), row.released_at)


def last_settled(connection: Connection, host: str) -> SettledDay | None:
    """The newest settled day."""
    row = connection.execute(_LAST, {"host": host}).one_or_none()
    return None if row is None else SettledDay.of(row)


def settled_days(connection: Connection, host: str) -> list[SettledDay]:
    """All settled days, the oldest first."""
    return [SettledDay.of(row) for row in connection.execute(_ALL, {"host": host})]


def add_settled(connection: Connection, host: str, settled: SettledDay) -> bool:
    """Record the day as settled; False when it is settled already, by a file with other content."""
    digest = bytes.fromhex(settled.sha256_hex)
    values = {"host": host, "day": settled.day, "sha256": digest, "records": settled.records}
    connection.execute(_ADD, values)
    return SettledDay.of(connection.execute(_ONE, values).one()).sha256_hex == settled.sha256_hex


def next_to_release(connection: Connection, host: str, before: date) -> SettledDay | None:
    """The oldest settled day before `before` that is not released for retention yet."""
    row = connection.execute(_TO_RELEASE, {"host": host, "before": before}).one_or_none()
    return None if row is None else SettledDay.of(row)


def release(connection: Connection, host: str, day: date) -> None:
    """Allow retention to delete the operations of this day."""
    connection.execute(_RELEASE, {"host": host, "day": day})


def settled_until(connection: Connection, host: str) -> datetime | None:
    """The end of the last settled day, UTC, without a zone."""
    last = last_settled(connection, host)
    return None if last is None else end_of(last.day)


def released_until(connection: Connection, host: str) -> datetime | None:
    """The end of the last released day, if all days before it are released too."""
    day: date | None = connection.execute(_RELEASED, {"host": host}).scalar()
    return None if day is None else end_of(day)
