"""Another program's transaction: it holds rows of one entity, by a plain second connection, for as long as it likes.

Applications record changes inside their own transactions, and reports read with locks: both hold a unit's row, an
entity's, or rows of the outbox, and nothing tells them how long they may. Whoever else's operations wait for that has a
fault (I10).
"""

from __future__ import annotations

import contextlib
from typing import Any, Self

import pymysql

from tests.faults.product import connect_database

LOCKED = {
    "units": "SELECT id FROM units WHERE id = %s FOR UPDATE",
    "entities": "SELECT id FROM entities WHERE id = %s FOR UPDATE",
    "outbox_events": "SELECT id FROM outbox_events WHERE entity_id = %s FOR UPDATE",
}


class ForeignLock:
    """`with ForeignLock(url, "units", "101"):` holds that unit's row until the block ends. `rows`:
    how many it holds."""

    def __init__(self, url: str, table: str, entity_id: str) -> None:
        self._url = url
        self._statement = LOCKED[table]
        self._entity_id = entity_id
        self._connection: pymysql.Connection[Any] | None = None
        self.rows = 0

    def take(self) -> None:
        """Raises pymysql.MySQLError where somebody else holds the row for long."""
        self._connection = connect_database(self._url)
        with self._connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")  # only what fits stays locked
            cursor.execute("START TRANSACTION")
            self.rows = cursor.execute(self._statement, (self._entity_id,))

    def release(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(pymysql.MySQLError):
                self._connection.rollback()
                self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
