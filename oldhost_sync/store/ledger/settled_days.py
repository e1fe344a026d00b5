"""Which days are settled: a row for each settlement file that was written, in order and without a gap.

The rows tie the folder to the database: a file that was lost, replaced or written by a relay with another folder is
noticed, and retention deletes only the released days of the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection, Row

from oldhost_sync.store.ledger.ended_operations import end_of

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
