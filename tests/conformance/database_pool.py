"""Databases that tests hand on: as new for each test, though their tables are made once.

Making the tables costs 0.3 s and most of it CPU; emptying the few that a test wrote costs a tenth of that. A database
is looked through when it is lent, not when it comes back: whatever its last borrower's helpers wrote late is gone too.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql

# A table that somebody still holds makes its database unfit; nobody waits for it.
LOCK_WAIT_SECONDS = 2
# More than a new table has, so that two tables are the same if their first rows are.
ROWS_COMPARED = 100
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a database holds: each table's definition, and the first rows of each table that has any."""

    definitions: dict[str, str]
    rows: dict[str, Rows]


class DatabasePool:
    """`with pool.lent() as name:` is a database as `make` makes it."""

    def __init__(
        self,
        prefix: str,
        make: Callable[[str], object],
        drop: Callable[[str], None],
        connect: Callable[[], pymysql.Connection[Any]],
    ) -> None:
        self._names = (f"{prefix}_{number}" for number in itertools.count(1))
        self._make = make
        self._drop = drop
        self._connect = connect
        self._back: deque[str] = deque()
        self._new: Contents | None = None

    @contextmanager
    def lent(self) -> Iterator[str]:
        name = self._as_new() or self._made()
        try:
            yield name
        finally:
            self._back.append(name)

    def _made(self) -> str:
        name = next(self._names)
        self._make(name)
        if self._new is None:
            with self._connect() as connection, connection.cursor() as cursor:
                self._new = contents(cursor, name)
            assert all(len(rows) < ROWS_COMPARED for rows in self._new.rows.values())
        return name

    def _as_new(self) -> str | None:
        """The first database that nobody uses and that can be cleaned; those that can't be are dropped."""
        if not self._back:
            return None
        with self._connect() as connection, connection.cursor() as cursor:
            in_use = databases_in_use(cursor)
            for name in [name for name in self._back if name not in in_use]:
                self._back.remove(name)
                if self._cleaned(cursor, name):
                    return name
                self._drop(name)
        return None

    def _cleaned(self, cursor: pymysql.cursors.Cursor, name: str) -> bool:
        assert self._new is not None
        try:
            clean(cursor, name, self._new)
            return contents(cursor, name) == self._new
        except pymysql.MySQLError:
            return False


def databases_in_use(cursor: pymysql.cursors.Cursor) -> set[str]:
    cursor.execute("SELECT db FROM information_schema.processlist WHERE db IS NOT NULL")
    return {name for (name,) in cursor.fetchall()}


def contents(cursor: pymysql.cursors.Cursor, database: str) -> Contents:
    """The number that AUTO_INCREMENT gives next is in the definition, unless it is 1."""
    cursor.execute(f"SHOW TABLES FROM {database}")
    tables = [table for (table,) in cursor.fetchall()]
    definitions = {table: _definition(cursor, f"{database}.{table}") for table in tables}
    cursor.execute(" UNION ALL ".join(f"(SELECT '{table}' FROM {database}.{table} LIMIT 1)" for table in tables))
    return Contents(definitions, {table: _rows(cursor, f"{database}.{table}") for (table,) in cursor.fetchall()})


def clean(cursor: pymysql.cursors.Cursor, database: str, new: Contents) -> None:
    """Empty the tables that differ from `new` and write the rows it has."""
    now = contents(cursor, database)
    cursor.execute(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}")
    for table, definition in now.definitions.items():
        rows = new.rows.get(table, [])
        if now.rows.get(table, []) != rows or definition != new.definitions.get(table):
            cursor.execute(f"TRUNCATE TABLE {database}.{table}")
            if rows:
                places = ", ".join(["%s"] * len(rows[0]))
                cursor.executemany(f"INSERT INTO {database}.{table} VALUES ({places})", rows)


def _definition(cursor: pymysql.cursors.Cursor, table: str) -> str:
    cursor.execute(f"SHOW CREATE TABLE {table}")
    row = cursor.fetchone()
    assert row is not None
    return str(row[1])


def _rows(cursor: pymysql.cursors.Cursor, table: str) -> Rows:
    cursor.execute(f"SELECT * FROM {table} LIMIT {ROWS_COMPARED}")
    return sorted(cursor.fetchall(), key=repr)
