"""The idempotency keys of a batch: which are new, and what the others were used for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from sqlalchemy.engine import Connection, Row

from oldhost_sync.store.errors import IdempotencyConflict
from oldhost_sync.store.intake.change_batch import Result
from oldhost_sync.store.intake.change_recorder import (
    CHANGE_COLUMNS,
    SCHEDULED_COLUMNS,
    RecordedChange,
    earlier_change,
    earlier_schedule,
)
from oldhost_sync.store.intake.validation import Acceptable

# Taken keys cause no error, and are not returned.
_TAKE_KEYS = "INSERT IGNORE INTO submitted_keys (host, idempotency_key, is_scheduled) VALUES "
_KEY_ROW = "(%s, %s, %s)"
_KEYS_HAVE_ROWS = "INSERT INTO submitted_keys (host, idempotency_key, is_scheduled, row_id) VALUES "
_KEY_WITH_ROW = "(%s, %s, FALSE, %s)"
_ROWS_OF_KEYS = (
    "SELECT idempotency_key, is_scheduled, row_id FROM submitted_keys FORCE INDEX (PRIMARY) "
    "WHERE host = %s AND idempotency_key IN "
)
_ROWS = {
    "outbox_events": f"SELECT {CHANGE_COLUMNS} FROM outbox_events FORCE INDEX (PRIMARY) WHERE id IN ",
    "scheduled_changes": f"SELECT {SCHEDULED_COLUMNS} FROM scheduled_changes FORCE INDEX (PRIMARY) WHERE id IN ",
}
# The index is forced: with another index of the host, a locking read would lock all its rows.
_KNOWN = {
    table: (
        f"SELECT {columns} FROM {table} FORCE INDEX (uq_{table}_idempotency_key) "
        "WHERE host = %s AND idempotency_key IN "
    )
    for table, columns in (("outbox_events", CHANGE_COLUMNS), ("scheduled_changes", SCHEDULED_COLUMNS))
}


class KeysTaken(Exception):  # noqa: N818 - an event, not a mistake
    """These keys were taken before, or between the read and the write."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__("keys are taken")
        self.keys = keys


class BatchKeys:
    """The keys of one batch, in the transaction of `connection`. `later`: those of the changes that are not due yet.
    `lock_wait`: what a statement begins with that meets the locks of others.
    """

    def __init__(self, connection: Connection, host: str, lock_wait: str) -> None:
        self._connection = connection
        self._host = host
        self._lock_wait = lock_wait
        self._known: dict[str, dict[str, Row[*tuple[Any, ...]]]] = {table: {} for table in _KNOWN}
        self.later: set[str] = set()

    def look_for(self, keys: Sequence[str]) -> None:
        """Remember the rows that have these keys, as they are committed."""
        for table, query in _KNOWN.items() if keys else ():
            self._remember(table, f"{query}({places_of(len(keys))})", self._host, *keys)

    def learn(self, taken: Sequence[str]) -> None:
        """Remember the rows that have these keys; waits for transactions that write them. Each row is read where it is:
        a locking read of a row that is missing would lock a gap.
        """
        query = f"{self._lock_wait}{_ROWS_OF_KEYS}({places_of(len(taken))}) LOCK IN SHARE MODE"
        places = self._connection.exec_driver_sql(query, (self._host, *taken)).all()
        for table, is_scheduled in (("scheduled_changes", True), ("outbox_events", False)):
            ids = [place.row_id for place in places if place.is_scheduled == is_scheduled]
            if ids:
                query = f"{self._lock_wait}{_ROWS[table]}({places_of(len(ids))}) LOCK IN SHARE MODE"
                self._remember(table, query, *ids)
        # Rows that were written without taking their keys.
        others = [key for key in taken if not any(key in known for known in self._known.values())]
        if others:
            query = f"{self._lock_wait}{_KNOWN['outbox_events']}({places_of(len(others))}) LOCK IN SHARE MODE"
            self._remember("outbox_events", query, self._host, *others)

    def _remember(self, table: str, query: str, *values: object) -> None:
        rows = self._connection.exec_driver_sql(query, values).all()
        self._known[table].update({row.idempotency_key: row for row in rows})

    def first_answer(self, change: Acceptable) -> Result | None:
        key = change.idempotency_key
        try:
            # A scheduled change that was recorded has a row in both tables; its first answer was the schedule's.
            if (known := self._known["scheduled_changes"].get(key)) is not None:
                return earlier_schedule(change, known)
            if (known := self._known["outbox_events"].get(key)) is not None:
                return earlier_change(change, known)
        except IdempotencyConflict as conflict:
            return conflict
        return None

    def take(self, changes: Sequence[Acceptable]) -> None:
        """Raises KeysTaken if one was taken before."""
        if not changes:
            return
        self.later = self._not_due([change for change in changes if change.not_before is not None])
        keys = sorted(change.idempotency_key for change in changes)
        values = [value for key in keys for value in (self._host, key, int(key in self.later))]
        statement = f"{self._lock_wait}{_TAKE_KEYS}{', '.join([_KEY_ROW] * len(keys))} RETURNING idempotency_key"
        mine = set(self._connection.exec_driver_sql(statement, tuple(values)).scalars())
        if len(mine) < len(keys):
            raise KeysTaken([key for key in keys if key not in mine])

    def connect(self, recorded: Mapping[str, RecordedChange]) -> None:
        """Write the id of each change to its key."""
        values: list[object] = []
        for key, change in sorted(recorded.items()):
            values += (self._host, key, change.change_id or change.scheduled_id)
        places = ", ".join([_KEY_WITH_ROW] * len(recorded))
        statement = f"{_KEYS_HAVE_ROWS}{places} ON DUPLICATE KEY UPDATE row_id = VALUES(row_id)"
        self._connection.exec_driver_sql(statement, tuple(values))

    def _not_due(self, planned: Sequence[Acceptable]) -> set[str]:
        """The keys of those that are not due yet, by the database's clock."""
        if not planned:
            return set()
        now = self._connection.exec_driver_sql("SELECT UTC_TIMESTAMP(6)").scalar_one().replace(tzinfo=UTC)
        return {each.idempotency_key for each in planned if each.not_before is not None and each.not_before > now}


def places_of(count: int) -> str:
    return ", ".join(["%s"] * count)
