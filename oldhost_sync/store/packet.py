"""Writes that go to MariaDB in one packet, with their COMMIT if they are the last: one round trip for all of them.

The server runs them in order and stops at the first that fails, or does not change the one row that it must: nothing
after it runs, COMMIT neither. Why a row was not there, and what follows, is decided here.

A packet is one compound statement, so a connection needs no right to send several statements at once, by which an
injected value could do more harm; docs/decisions/round-trips.md has what else was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.store.errors import (
    GONE,
    AccessRefused,
    DatabaseUnavailable,
    StatementRefused,
    error_code,
    is_demoted,
    translate,
)
from oldhost_sync.store.transactions import commit_uncertain

# MariaDB's own errors end far below it; PyMySQL reads numbers above 32,767 as negative.
_STOPPED = 31_000
_SIGNAL = f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {_STOPPED}, MESSAGE_TEXT = '{{number}}'"
_STOP_UNLESS_CHANGED = f"IF ROW_COUNT() <> 1 THEN {_SIGNAL}; END IF"
_IS_OPEN = "SELECT @@in_transaction"


class Packet:
    """Writes of one transaction, each a statement with its values, that wait to be sent together on `connection`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._statements: list[str] = []
        self._values: list[object] = []
        self._otherwise: list[Callable[[], NoReturn]] = []

    def add(self, statement: str, values: Sequence[object] = ()) -> None:
        self._statements.append(statement)
        self._values += values

    def require(self, statement: str, values: Sequence[object], otherwise: Callable[[], NoReturn]) -> None:
        """`statement` must change one row. If not, nothing after it runs, and `otherwise` is called, which raises."""
        self.add(statement, values)
        self.add(_STOP_UNLESS_CHANGED.format(number=len(self._otherwise)))
        self._otherwise.append(otherwise)

    def run(self) -> None:
        """Send them, and begin anew."""
        if not self._statements:
            return
        statement, values = f"BEGIN NOT ATOMIC {'; '.join(self._statements)}; END", tuple(self._values)
        self._statements, self._values = [], []
        try:
            self.connection.exec_driver_sql(statement, values)
        except DBAPIError as error:
            if error_code(error) == _STOPPED and error.orig is not None:
                self._otherwise[int(error.orig.args[-1])]()
            raise

    def commit(self) -> None:
        """Send them with COMMIT. Raises CommitUncertain if that may have been carried out without our hearing of it."""
        self.add("COMMIT")
        try:
            self.run()
        except DBAPIError as error:
            if self._may_be_committed(error):
                raise commit_uncertain(error) from error
            raise

    def _may_be_committed(self, error: DBAPIError) -> bool:
        """Not if the packet never arrived whole, a statement was refused, or the transaction is still open."""
        known = translate(error)
        if error_code(error) == GONE or is_demoted(error) or not isinstance(known, DatabaseUnavailable):
            return False
        if isinstance(known, AccessRefused | StatementRefused):
            return False
        try:
            return self.connection.invalidated or not self.connection.exec_driver_sql(_IS_OPEN).scalar()
        except DBAPIError:
            return True
