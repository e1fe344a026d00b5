"""MariaDB's compound statements, as far as the product has them, carried out one statement after the other.

No value is in the text, so each "; " ends a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Protocol

from sqlalchemy.exc import OperationalError

from oldhost_sync.store.errors import LOCK_WAIT_TIMEOUT, error_code
from oldhost_sync.store.outbox.pending_fates import listed

BEGIN, END = "BEGIN NOT ATOMIC ", "; END"
_STOP = re.compile(r"IF ROW_COUNT\(\) <> 1 THEN SIGNAL .* MYSQL_ERRNO = (\d+), MESSAGE_TEXT = '(\d+)'")
_EACH = re.compile(r"FOR (\w+) IN \((.*)\) DO (BEGIN .*)")
_LOCKED = f"BEGIN DECLARE EXIT HANDLER FOR {LOCK_WAIT_TIMEOUT} "


class Stopped(Exception):  # noqa: N818 - a SIGNAL has stopped it
    """A SIGNAL of its own."""


class _Runs(Protocol):
    def exec_driver_sql(self, statement: str, values: Sequence[Any] = ()) -> Any: ...

    def commit(self) -> None: ...


@cache
def _parts(statement: str) -> list[str]:
    body = statement.removeprefix(BEGIN).removesuffix(END)
    return [part for part in body.split("; ") if not part.startswith(("DECLARE ", "END"))]


class Compound:
    """One run of a compound statement on `connection`."""

    def __init__(self, connection: _Runs, values: Sequence[Any]) -> None:
        self._connection = connection
        self._values = iter(values)
        self._result: Any = None

    def run(self, statement: str) -> Any:
        """The result of its last statement. Raises Stopped with the number and text of a SIGNAL."""
        parts = iter(_parts(statement))
        for part in parts:
            if stop := _STOP.fullmatch(part):
                if self._result.rowcount != 1:
                    raise Stopped(int(stop[1]), stop[2])
            elif part == "COMMIT":
                self._connection.commit()
            else:
                self._result = self._block(part, parts)
        return self._result

    def _block(self, part: str, parts: Iterator[str]) -> Any:
        if each := _EACH.fullmatch(part):
            found = self._connection.exec_driver_sql(each[2], self._take(each[2])).scalars().all()
            instead, statement = each[3].removeprefix(_LOCKED), next(parts)
            values = self._take(instead), self._take(statement)
            if found:  # all at once, which is quicker here
                row, ids = f"{each[1]}.id", listed(found)
                return self._unless_locked(instead.replace(row, ids), statement.replace(row, ids), *values)
            return None
        if part.startswith(_LOCKED):
            instead, statement = part.removeprefix(_LOCKED), next(parts)
            return self._unless_locked(instead, statement, self._take(instead), self._take(statement))
        return self._connection.exec_driver_sql(re.sub(r" INTO \w+ FROM", " FROM", part), self._take(part))

    def _unless_locked(self, instead: str, statement: str, instead_values: list[Any], values: list[Any]) -> Any:
        try:
            return self._connection.exec_driver_sql(statement, values)
        except OperationalError as error:
            if error_code(error) != LOCK_WAIT_TIMEOUT:
                raise
            return self._connection.exec_driver_sql(instead, instead_values)

    def _take(self, statement: str) -> list[Any]:
        return [next(self._values) for _ in range(statement.count("%s"))]
