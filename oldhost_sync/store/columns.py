"""The building blocks of the tables: identifiers, times, and the options that all tables share; and what makes text
from outside fit for a column.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sqlalchemy import CheckConstraint, Column, MetaData, Table, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator

from oldhost_sync.policy.limits import HOST_LENGTH_MAX

NOW = text("CURRENT_TIMESTAMP(6)")
metadata = MetaData(
    naming_convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s", "uq": "uq_%(table_name)s_%(column_0_N_name)s"}
)


class UtcDateTime(TypeDecorator[datetime]):
    """DATETIME(6) that accepts only aware times, stores UTC and returns aware UTC."""

    impl = mysql.DATETIME(fsp=6)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone can't be stored: give an aware datetime")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else value.replace(tzinfo=UTC)


def text_id(length: int) -> mysql.VARCHAR:
    return mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_nopad_bin")


def by_host() -> Column[str]:
    """The first part of a primary key."""
    return Column("host", text_id(HOST_LENGTH_MAX), primary_key=True)


def of_host() -> Column[str]:
    return Column("host", text_id(HOST_LENGTH_MAX), nullable=False)


def stamp(name: str) -> Column[datetime]:
    """A time that the database sets when it creates the row."""
    return Column(name, UtcDateTime, nullable=False, server_default=NOW)


def one_of(name: str, column: str, *values: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=name)


def table(name: str, *parts: SchemaItem) -> Table:
    return Table(name, metadata, *parts, mysql_engine="InnoDB", mysql_charset="utf8mb4")


# ---------------------------------------------------------------------------------------------------- text from outside

# Every text that people will read passes through `storable`. JSON can contain what UTF-8 can't (`"\ud800"`, half a
# character), and the driver fails on it at each attempt; control characters (NUL, escape) would mislead a reader. Both
# are stored escaped: `\ud800`, `\x1b`.

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def storable(text: str, length_max: int) -> str:
    """`text` for a column of `length_max` characters: never refused, cut if it is too long."""
    return _UNPRINTABLE.sub(_as_escape, text[:length_max])[:length_max]


def _as_escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def like_pattern(text: str, *, anywhere: bool = False) -> str:
    """A LIKE pattern for values that begin with `text`, or contain it anywhere; wildcards in `text` are escaped."""
    escaped = re.sub(r"([\\%_])", r"\\\1", text)
    return f"%{escaped}%" if anywhere else f"{escaped}%"
