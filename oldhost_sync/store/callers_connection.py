"""What a change is recorded on: the connection of the caller's transaction, whatever has it.

Recording needs one thing of it: to run a statement with `%s` for each value. SQLAlchemy's Connection does that itself.
For any other (of a driver by PEP 249, Django's), and for tables in another schema than the connection's own, there is
`CallersConnection`. Its errors are SQLAlchemy's while we decide what they mean; those that the caller gets are its
driver's.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, NoResultFound

from oldhost_sync.store.tables import metadata

SCHEMA = re.compile(r"[A-Za-z0-9_$-]{1,64}")
_NAMED = re.compile(
    rf"\b(FROM|JOIN|STRAIGHT_JOIN|INTO|UPDATE)(\s+)({'|'.join(sorted(metadata.tables, reverse=True))})\b"
)
# What to pass instead of these, by the name of their class.
_INSTEAD = {
    "Engine": "the connection of `with engine.begin() as connection`",
    "AsyncConnection": "it by `await connection.run_sync(record_change, host=…, …)`",
    "AsyncSession": "it by `await session.run_sync(record_change, host=…, …)`",
    "AsyncEngine": "the connection that `run_sync` of `async with engine.begin() as connection` gives",
}


class Result(Protocol):
    """A statement's result, of which SQLAlchemy's has more."""

    @property
    def rowcount(self) -> int: ...

    def all(self) -> Sequence[Any]: ...

    def first(self) -> Any: ...

    def one(self) -> Any: ...

    def one_or_none(self) -> Any: ...

    def scalar(self) -> Any: ...

    def scalar_one(self) -> Any: ...

    def scalars(self) -> Iterable[Any]: ...


class Statements(Protocol):
    """What recording needs of a connection."""

    def exec_driver_sql(self, statement: str, parameters: tuple[Any, ...] = ..., /) -> Result: ...


@contextmanager
def statements_of(connection: object, schema: str | None) -> Iterator[Statements]:
    """The caller's connection as recording needs it. `schema`: where our tables are; None: the connection's own.

    Raises TypeError for what can't be used, and says what to pass.
    """
    if schema is not None and not SCHEMA.fullmatch(schema):
        raise ValueError("schema: give the name of our tables' schema: letters, digits, '_', '$' and '-', 64 at most")
    names = [base.__name__ for base in type(connection).__mro__]
    if "Session" in names or "scoped_session" in names:
        connection = connection.connection()  # type: ignore[attr-defined]
    if isinstance(connection, Connection):
        yield connection if schema is None else CallersConnection(connection.exec_driver_sql, schema)
        return
    driver = _driver_of(connection, names)
    try:
        yield CallersConnection(driver.run, schema)
    except DBAPIError as error:
        if error.orig is None:
            raise
        raise error.orig from None


class CallersConnection:
    """See the module."""

    def __init__(self, run: Callable[[str, tuple[Any, ...]], Result], schema: str | None) -> None:
        self._run = run
        self._schema = schema

    def exec_driver_sql(self, statement: str, parameters: tuple[Any, ...] = (), /) -> Result:
        return self._run(statement if self._schema is None else in_schema(statement, self._schema), parameters)


@lru_cache(maxsize=256)
def in_schema(statement: str, schema: str) -> str:
    """The statement with the schema named at each of our tables."""
    return _NAMED.sub(rf"\1\2`{schema}`.\3", statement)


class _Driver(NamedTuple):
    """`error`: what its errors are instances of; `place`: how it marks a value in a statement."""

    cursor: Callable[[], Any]
    error: type[Exception]
    place: str

    def run(self, statement: str, parameters: tuple[Any, ...]) -> Result:
        statement = statement.replace("%s", self.place)
        with closing(self.cursor()) as cursor:
            try:
                cursor.execute(statement, parameters)
                rows = cursor.fetchall() if cursor.description else ()
            except self.error as error:
                raise DBAPIError.instance(statement, None, error, self.error, hide_parameters=True) from error
            return FetchedRows([column[0] for column in cursor.description or ()], rows, cursor.rowcount)


def _driver_of(connection: object, names: Sequence[str]) -> _Driver:
    if "DatabaseWrapper" in names or "ConnectionProxy" in names:  # Django's
        return _Driver(connection.cursor, sys.modules["django.db.utils"].Error, "%s")  # type: ignore[attr-defined]
    module = sys.modules.get(type(connection).__module__.partition(".")[0])
    commit, style = getattr(connection, "commit", None), getattr(module, "paramstyle", "")
    usable = hasattr(connection, "cursor") and commit is not None and not inspect.iscoroutinefunction(commit)
    place = {"format": "%s", "pyformat": "%s", "qmark": "?"}.get(style)
    if not usable or place is None:
        advice = next((_INSTEAD[name] for name in names if name in _INSTEAD), "the one of your transaction")
        kind = type(connection).__qualname__
        raise TypeError(f"a change is recorded on a connection to MariaDB, not on a {kind}: pass {advice}")
    return _Driver(connection.cursor, module.Error, place)  # type: ignore[attr-defined,union-attr]


class FetchedRows:
    """Result of a driver's cursor, with the columns' names."""

    def __init__(self, names: Sequence[str], rows: Iterable[Any], rowcount: int) -> None:
        row_type = _row_type(tuple(names))
        self._rows = [row_type(*(row.values() if isinstance(row, Mapping) else row)) for row in rows]
        self.rowcount = rowcount

    def all(self) -> Sequence[Any]:
        return self._rows

    def first(self) -> Any:
        return self._rows[0] if self._rows else None

    def one_or_none(self) -> Any:
        return self.first()

    def one(self) -> Any:
        if not self._rows:
            raise NoResultFound("no row was found")
        return self._rows[0]

    def scalar(self) -> Any:
        return self._rows[0][0] if self._rows else None

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalars(self) -> Iterable[Any]:
        return [row[0] for row in self._rows]


@cache
def _row_type(names: tuple[str, ...]) -> Callable[..., Any]:
    return namedtuple("Row", names, rename=True)  # noqa: PYI024 - its columns are the statement's
