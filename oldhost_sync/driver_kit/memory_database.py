"""MariaDB's place where there is none: the product's own statements, translated as they come, on SQLite in memory.

So the ledger, the settling, the recording, the claims and the decisions that run here are the real ones, down to their
SQL; only the dialect's few functions and the clock are other. The ledger's conformance suite runs on this database as
it does on MariaDB. A transaction happens at one instant: isolation and locks are MariaDB's business (level L3), but
that ids are not in commit order is here as well (`Begin`).
"""

from __future__ import annotations

import json
import re
import sqlite3
import weakref
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace
from typing import Any, Self

import pymysql.err
from sqlalchemy import JSON, Select, Table
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import Compiled
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.sql.elements import ClauseElement, ColumnElement

from oldhost_sync.driver_kit import compound
from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.intake.rules import DEFAULT_RULES
from oldhost_sync.store.schema_migration import DEFAULT_HOST
from oldhost_sync.store.tables import metadata

DUPLICATE_KEY, CHECK_VIOLATED = 1062, 4025
_DIALECT = MySQLDialect_pymysql(paramstyle="pyformat")
_TIMES = {
    column.name for table in metadata.sorted_tables for column in table.columns if isinstance(column.type, UtcDateTime)
}

_RULES: list[tuple[str, str]] = [
    (r"^SET STATEMENT innodb_lock_wait_timeout = 0 FOR ", ""),
    (r"TIMESTAMPDIFF\(MICROSECOND, (MAX\(\w+\)|[\w().]+?), (MAX\(\w+\)|[\w().]+?)\) DIV 1000", r"((\2) - (\1)) / 1000"),
    (r"UTC_TIMESTAMP\(6\)|CURRENT_TIMESTAMP\(6\)|UTC_TIMESTAMP\b", "utc_now()"),
    (r"([+-]) INTERVAL (\S+) MICROSECOND", r"\1 \2"),
    (r"([+-]) INTERVAL (\S+) SECOND", r"\1 1000000 * \2"),
    (r"([+-]) INTERVAL (\S+) DAY", r"\1 86400000000 * \2"),
    (r"^SET STATEMENT [a-z_]+ ?= ?\d+ FOR ", ""),
    (r"INSERT IGNORE INTO", "INSERT OR IGNORE INTO"),
    (r"DELETE (\w) FROM (\w+) AS \1", r"DELETE FROM \2 AS \1"),
    (r"FORCE INDEX \(\w+\)|FOR UPDATE( SKIP LOCKED| NOWAIT)?|LOCK IN SHARE MODE( NOWAIT)?|FROM DUAL", ""),
    (r"\bSTRAIGHT_JOIN\b", "JOIN"),
    (r"ON DUPLICATE KEY UPDATE (host = host|id = id)", "ON CONFLICT DO NOTHING"),
    (r"ON DUPLICATE KEY UPDATE", "ON CONFLICT DO UPDATE SET"),
    (r"\bVALUES\((\w+)\)(?=,| WHERE|$|\))", r"excluded.\1"),
    (r"GREATEST\(", "max("),
    (r"LEAST\(", "min("),
    (r"\bIF\(", "iif("),
    (r"JSON_COMPACT\(", "json("),
    (r"JSON_VALUE\(", "json_extract("),
    (r"LEFT\(([^,]+), (\d+)\)", r"substr(\1, 1, \2)"),
    (r"INSERT INTO outbox_events \(host,", "INSERT INTO outbox_events (id, host,"),
    (r"\bTRUE\b", "1"),
    (r"@@autocommit = 1 AND @@in_transaction = 0", "0"),  # every statement here is in a transaction
    (r"%%", "%"),
]


def _octets(text: str | None) -> int | None:
    return None if text is None else len(text.encode())


def _replaced(given: str | None, pattern: str, by: str) -> str | None:
    """As MariaDB's REGEXP_REPLACE, for a text without regard to case."""
    return None if given is None else re.sub(pattern, by, given, flags=re.IGNORECASE)


@cache
def translated(statement: str) -> str:
    """MariaDB's text as SQLite's. `%s` and `%(name)s` become `?` and `:name`."""
    given = statement
    if "INSERT INTO outbox_events (host," in statement:
        statement = statement.replace("VALUES (", "VALUES (next_outbox_id(), ", 1)
    for pattern, replacement in _RULES:
        statement = re.sub(pattern, replacement, statement)
    statement = re.sub(r"%\((\w+)\)s", r":\1", statement).replace("%s", "?")
    if "UNION ALL" in statement and statement.lstrip().startswith("("):
        parts = re.findall(r"\((SELECT .*?LIMIT :\w+)\)", statement)
        order = statement[statement.rindex(")") + 1 :]
        statement = " UNION ALL ".join(f"SELECT * FROM ({part})" for part in parts) + order
    join = re.fullmatch(r"UPDATE (\w+) (\w) JOIN (\w+) (\w) ON (.*?) SET (.*?) WHERE (.*)", statement)
    if join:
        table, one, other, two, on, changes, where = join.groups()
        changes = changes.replace(f"{one}.", "")
        statement = (
            f"UPDATE {table} SET {changes} WHERE rowid IN "
            f"(SELECT {one}.rowid FROM {table} {one} JOIN {other} {two} ON {on} WHERE {where})"
        )
    if "ON CONFLICT" in statement and " SELECT " in statement.upper().split("ON CONFLICT")[0]:
        raise NotImplementedError(given)
    return statement


def _create(table: Table) -> str:
    columns = []
    keys = [column.name for column in table.primary_key.columns]
    for column in table.columns:
        default = getattr(column.server_default, "arg", None)
        text = str(default) if default is not None and "TIMESTAMP" not in str(default) else ""
        rule = " PRIMARY KEY" if keys == [column.name] and str(column.type).startswith("BIGINT") else ""
        kind = "INTEGER" if rule or str(column.type) in {"BIGINT", "INTEGER", "BOOLEAN"} else ""
        null = "" if column.nullable or rule or "TIMESTAMP" in str(default) else " NOT NULL"
        columns.append(f"{column.name} {kind}{rule}{null}{f' DEFAULT {text}' if text else ''}")
    if not any("PRIMARY KEY" in column for column in columns):
        columns.append(f"PRIMARY KEY ({', '.join(keys)})")
    for constraint in sorted(table.constraints, key=lambda one: str(one.name)):
        kind = type(constraint).__name__
        if kind == "UniqueConstraint":
            columns.append(f"UNIQUE ({', '.join(column.name for column in constraint.columns)})")  # type: ignore[attr-defined]
        elif kind == "CheckConstraint":
            columns.append(f"CHECK ({constraint.sqltext})")  # type: ignore[attr-defined]
    return f"CREATE TABLE {table.name} ({', '.join(columns)})"


_SCHEMA = [_create(table) for table in metadata.sorted_tables] + [
    f"CREATE INDEX {index.name} ON {table.name} ({', '.join(column.name for column in index.columns)})"
    for table in metadata.sorted_tables
    for index in sorted(table.indexes, key=lambda one: str(one.name))
]
# Units belong to three properties, or to none.
_SCHEMA.append(
    "CREATE TRIGGER unit_has_property AFTER INSERT ON units BEGIN UPDATE units "
    "SET property_id = NULLIF('p' || unicode(substr(id, -1)) % 4, 'p0') WHERE host = NEW.host AND id = NEW.id; END"
)


@cache
def _empty() -> bytes:
    """All tables, empty but for one host's rules, as a database's bytes: laying the schema down anew for each run
    costs ten times as much.
    """
    rules = [(DEFAULT_HOST, event_type, given.value) for event_type, given in DEFAULT_RULES.items()]
    with closing(sqlite3.connect(":memory:")) as raw:
        raw.create_function("OCTET_LENGTH", 1, _octets, deterministic=True)
        for statement in _SCHEMA:
            raw.execute(statement)
        raw.executemany("INSERT INTO event_rules (host, event_type, priority_class) VALUES (?, ?, ?)", rules)
        raw.commit()
        return raw.serialize()


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction whose INSERT ran at `at` with the outbox id `change_id`, though it commits later."""

    at_us: int
    change_id: int


class MemoryDatabase:
    """All tables. `now`: epoch seconds of the database's clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._begin: Begin | None = None
        self._ids = 0
        self.raw = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)
        weakref.finalize(self, self.raw.close)
        self.raw.deserialize(_empty())
        self.raw.create_function("OCTET_LENGTH", 1, _octets, deterministic=True)
        # The clock stands still while a statement runs: one asking of it is enough, not one for each row.
        self.raw.create_function("utc_now", 0, self.now_us, deterministic=True)
        self.raw.create_function("next_outbox_id", 0, self._outbox_id)
        # Only compared, so the digest may be the text itself.
        self.raw.create_function("MD5", 1, lambda given: given, deterministic=True)
        self.raw.create_function("UNHEX", 1, lambda given: given, deterministic=True)
        self.raw.create_function("REGEXP_REPLACE", 3, _replaced, deterministic=True)
        self.after_commit: list[Callable[[], None]] = []
        self.after_statement: list[Callable[[str, tuple[Any, ...]], None]] = []

    def now_us(self) -> int:
        return self._begin.at_us if self._begin else round(self._now() * 1_000_000)

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def _outbox_id(self) -> int:
        return self._begin.change_id if self._begin else self.next_id()

    def begin(self, begin: Begin | None) -> None:
        self._begin = begin
        self.raw.execute("BEGIN")

    def commit(self) -> None:
        self.raw.execute("COMMIT")
        self._begin = None
        for act in self.after_commit:
            act()

    def rollback(self) -> None:
        if self.raw.in_transaction:
            self.raw.execute("ROLLBACK")
        self._begin = None

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """For the checks: SQLite's own SQL."""
        return self.raw.execute(statement, values).fetchall()

    def run(self, statement: str, values: Any) -> MemoryResult:
        try:
            cursor = self.raw.execute(translated(statement), _bound(values))
        except sqlite3.IntegrityError as error:
            code = CHECK_VIOLATED if "CHECK" in str(error) else DUPLICATE_KEY
            raise database_error(code, str(error)) from error
        result = MemoryResult(cursor)
        for look in self.after_statement:
            look(statement, tuple(values.values()) if isinstance(values, dict) else tuple(values))
        return result


def database_error(code: int, text: str) -> OperationalError | IntegrityError:
    """An error as SQLAlchemy gives pymysql's."""
    if code == DUPLICATE_KEY:
        return IntegrityError("", {}, pymysql.err.IntegrityError(code, text))
    return OperationalError("", {}, pymysql.err.OperationalError(code, text))


_AS_THEY_ARE = {int, str, bytes, type(None), bool, float}


def _bound(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: value if type(value) in _AS_THEY_ARE else _plain(value) for name, value in values.items()}
    return [value if type(value) in _AS_THEY_ARE else _plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1_000_000)
    if isinstance(value, dict):
        return json.dumps(value)
    return value


@cache
def _row_type(names: tuple[str, ...]) -> tuple[Any, tuple[int, ...]]:
    kind = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # noqa: PYI024 - its fields are known when it runs
    kind._mapping = property(lambda row: dict(zip(names, row, strict=True)))  # type: ignore[attr-defined]  # noqa: SLF001
    return kind, tuple(index for index, name in enumerate(names) if name in _TIMES)


class MemoryResult:
    """What SQLAlchemy's results are used for here."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._rows: list[Any] = []
        if cursor.description is not None:
            kind, times = _row_type(tuple(column[0] for column in cursor.description))
            self._rows = [kind._make(_moments(row, times) if times else row) for row in cursor.fetchall()]
        self.rowcount = cursor.rowcount if cursor.rowcount >= 0 else len(self._rows)

    def read_json(self, columns: Sequence[int]) -> None:
        """As SQLAlchemy reads columns of its type JSON."""
        for column in columns:
            self._rows = [
                row if row[column] is None else row._replace(**{row._fields[column]: json.loads(row[column])})
                for row in self._rows
            ]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def all(self) -> list[Any]:
        return self._rows

    def first(self) -> Any:
        return self._rows[0] if self._rows else None

    def one_or_none(self) -> Any:
        assert len(self._rows) <= 1, f"{len(self._rows)} rows where at most one was expected"
        return self.first()

    def one(self) -> Any:
        assert len(self._rows) == 1, f"{len(self._rows)} rows where one was expected"
        return self._rows[0]

    def scalar(self) -> Any:
        return self._rows[0][0] if self._rows else None

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalars(self) -> Scalars:
        return Scalars([row[0] for row in self._rows])


class Scalars(list[Any]):
    def all(self) -> list[Any]:
        return list(self)


def _is_json(column: ColumnElement[Any]) -> bool:
    return isinstance(column.type, JSON)


def _moments(row: Sequence[Any], times: tuple[int, ...]) -> list[Any]:
    values = list(row)
    for index in times:
        if values[index] is not None:
            values[index] = datetime.fromtimestamp(values[index] / 1_000_000, UTC).replace(tzinfo=None)
    return values


class PlainConnection:
    """A connection without faults, for the conformance suite and whoever sets a scene."""

    # What a change is recorded on must be an SQLAlchemy Connection; so its twin passes for one.
    __class__ = Connection  # type: ignore[assignment]
    invalidated = False
    # The pool's connection, and the driver's below it, which is asked whether it commits each statement.
    connection = SimpleNamespace(dbapi_connection=SimpleNamespace(get_autocommit=lambda: False))

    def __init__(self, database: MemoryDatabase, begin: Begin | None = None) -> None:
        self.database = database
        self._begin = begin
        self._begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.rollback()

    def exec_driver_sql(self, statement: str, values: Sequence[Any] = ()) -> MemoryResult:
        if statement.startswith(compound.BEGIN):
            return self._run_compound(statement, values)
        self.before_statement(statement)
        return self.database.run(statement, values)

    def _run_compound(self, statement: str, values: Sequence[Any]) -> MemoryResult:
        try:
            result: MemoryResult = compound.Compound(self, values).run(statement)
        except compound.Stopped as error:
            raise database_error(*error.args) from error
        return result

    def execute(self, statement: ClauseElement, values: dict[str, Any] | None = None) -> MemoryResult:
        text, fixed = _compiled(statement)
        self.before_statement(text)
        result = self.database.run(text, {**fixed, **(values or {})})
        if isinstance(statement, Select):  # of columns whose types are known
            result.read_json([index for index, each in enumerate(statement.selected_columns) if _is_json(each)])
        return result

    def begin_nested(self) -> Savepoint:
        self.before_statement("")
        return Savepoint(self.database)

    def before_statement(self, statement: str) -> None:  # noqa: ARG002 - the simulation's looks at it
        if not self._begun:
            self._begun = True
            self.database.begin(self._begin)

    def commit(self) -> None:
        if self._begun:
            self._begun = False
            self.database.commit()

    def rollback(self) -> None:
        if self._begun:
            self._begun = False
            self.database.rollback()


class Savepoint:
    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        database.raw.execute("SAVEPOINT inner_one")

    def commit(self) -> None:
        self._database.raw.execute("RELEASE inner_one")

    def rollback(self) -> None:
        self._database.raw.execute("ROLLBACK TO inner_one")
        self._database.raw.execute("RELEASE inner_one")


class PlainEngine:
    """As much of an Engine as `run_in_transaction` uses."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    def connect(self) -> PlainConnection:
        return PlainConnection(self._database)

    @contextmanager
    def begin(self) -> Iterator[PlainConnection]:
        with self.connect() as connection:
            yield connection
            connection.commit()


_texts: dict[int, tuple[ClauseElement, str]] = {}
_built: dict[Any, Compiled] = {}


def _compiled(statement: ClauseElement) -> tuple[str, dict[str, Any]]:
    known = _texts.get(id(statement))
    if known is not None:
        return known[1], {}
    if type(statement).__name__ in {"TextClause", "TextualSelect"}:
        text = str(statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True}))
        _texts[id(statement)] = (statement, text)
        return text, {}
    return _compiled_anew(statement)


def _compiled_anew(statement: ClauseElement) -> tuple[str, dict[str, Any]]:
    """A statement that is built each time is compiled once for each form of it, as SQLAlchemy's own cache does."""
    key = statement._generate_cache_key()  # noqa: SLF001
    known = _built.get(key.key) if key else None
    if key and known is not None:
        return str(known), dict(known.construct_params(extracted_parameters=key.bindparams) or {})
    compiled = statement.compile(dialect=_DIALECT, cache_key=key, compile_kwargs={"render_postcompile": True})
    if key and not compiled.post_compile_params:  # type: ignore[attr-defined]  # an IN's text depends on its values
        _built[key.key] = compiled
    return str(compiled), dict(compiled.params or {})
