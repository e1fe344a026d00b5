"""Recording's statements on SQLite, in a transaction of the application's own test database.

The statements are the product's, so keys, savepoints, refusals and their words are, too. Here are only the differences
between the two dialects. What remains of MariaDB's alone: locks, isolation levels and its numbers of other errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import CheckConstraint, Column, Table, UniqueConstraint
from sqlalchemy.exc import DBAPIError

from oldhost_sync.store.callers_connection import FetchedRows, Result, in_schema
from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.errors import CHECK_VIOLATED, DUPLICATE_KEY, NULL_REFUSED
from oldhost_sync.store.tables import (
    entities,
    event_rules,
    host_mappings,
    outbox_events,
    scheduled_changes,
    submitted_keys,
    units,
)

TABLES = (event_rules, host_mappings, units, entities, submitted_keys, outbox_events, scheduled_changes)
_AUTOCOMMIT = "@@autocommit = 1 AND @@in_transaction = 0"
_NOW = "UTC_TIMESTAMP(6)"
# In this order.
_DIFFERENCES = (
    (r"^SET STATEMENT .*? FOR ", ""),
    (r" LOCK IN SHARE MODE| FOR UPDATE( SKIP LOCKED| NOWAIT)?| FORCE INDEX \(\w+\)", ""),
    (r"\bINSERT IGNORE\b", "INSERT OR IGNORE"),
    (r"\bON DUPLICATE KEY UPDATE\b", "ON CONFLICT DO UPDATE SET"),
    (r"\bVALUES\((\w+)\)", r"excluded.\1"),
    (r"\bIF\(", "IIF("),
    (r"\bJSON_COMPACT\(", "json("),
    (r"\bOCTET_LENGTH\(", "LENGTH("),  # JSON of ours is ASCII
    (r"`(\w[^`]*)`\.(\w+)", r"`\1.\2`"),  # a schema is the first part of a table's name
    (rf"^SELECT {re.escape(_NOW)}$", f"SELECT {_NOW} AS now_at"),
)
_ERRORS = {"NOT NULL": NULL_REFUSED, "UNIQUE": DUPLICATE_KEY, "CHECK": CHECK_VIOLATED}
_ERROR = re.compile(r"(NOT NULL|UNIQUE|CHECK) constraint failed")
_TIME, _DEFAULT_TIME = "%Y-%m-%d %H:%M:%S.%f", "(datetime('now') || '.000000')"


class SqliteStatements:
    """`run`: the connection's own way to run a statement, with `place` for each value. `autocommit`: whether it commits
    each statement by itself.
    """

    def __init__(
        self, run: Callable[[str, tuple[Any, ...]], Result], place: str, schema: str | None, *, autocommit: bool
    ) -> None:
        self._run = run
        self._place = place
        self._schema = schema
        self._autocommit = autocommit

    def exec_driver_sql(self, statement: str, parameters: tuple[Any, ...] = (), /) -> Result:
        named = statement if self._schema is None else in_schema(statement, self._schema)
        text = _as_sqlite(named).replace(_AUTOCOMMIT, str(int(self._autocommit)))
        text = text.replace(_NOW, f"'{datetime.now(UTC).strftime(_TIME)}'").replace("%s", self._place)
        try:
            result = self._run(text, tuple(_given(value) for value in parameters))
        except DBAPIError as error:
            if error.orig is not None and (kind := _ERROR.search(str(error.orig))):
                error.orig.args = (_ERRORS[kind[1]], *error.orig.args)
            raise
        if not (text.startswith("SELECT") or " RETURNING " in text):
            return result
        found = result.all()
        names = tuple(found[0]._fields) if found else ()
        return FetchedRows(names, [_taken(names, row) for row in found], len(found))


@cache
def _as_sqlite(statement: str) -> str:
    for mariadbs, sqlites in _DIFFERENCES:
        statement = re.sub(mariadbs, sqlites, statement)
    return statement


def _given(value: Any) -> Any:
    return value.strftime(_TIME) if isinstance(value, datetime) else value


def _taken(names: Iterable[str], row: Iterable[Any]) -> list[Any]:
    return [
        datetime.fromisoformat(value) if name.endswith("_at") and isinstance(value, str) else value
        for name, value in zip(names, row, strict=True)
    ]


def create(table: Table) -> str:
    """The statement that creates the table, as far as recording needs it."""
    is_numbered = table.primary_key.columns.keys() == ["id"]
    parts = ["id INTEGER PRIMARY KEY AUTOINCREMENT"] if is_numbered else []
    parts += [_column(column) for column in table.columns if not (is_numbered and column.name == "id")]
    if not is_numbered:
        parts.append(f"PRIMARY KEY ({', '.join(table.primary_key.columns.keys())})")
    unique = [each.columns for each in table.constraints if isinstance(each, UniqueConstraint)]
    unique += [each.columns for each in table.indexes if each.unique]
    parts += [f"UNIQUE ({', '.join(columns.keys())})" for columns in unique]
    checks = [each for each in table.constraints if isinstance(each, CheckConstraint)]
    parts += [f"CONSTRAINT {each.name} CHECK ({each.sqltext})" for each in checks]
    return f"CREATE TABLE {table.name} ({', '.join(parts)})"


def _column(column: Column[Any]) -> str:
    is_time = isinstance(column.type, UtcDateTime)
    default = getattr(column.server_default, "arg", None)
    given = "" if default is None else f" DEFAULT {_DEFAULT_TIME if is_time else default}"
    return f"{column.name}{' DATETIME' if is_time else ''}{'' if column.nullable else ' NOT NULL'}{given}"
