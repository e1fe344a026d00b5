"""The one way to run a transaction: on a conflict the whole function is repeated; otherwise it raises a clear error.
And writes that go to MariaDB in one packet.

After a deadlock the server has rolled back the transaction; repeating only the last statement would commit half of it
(trap 20). So the whole function is repeated, in a new transaction, a bounded number of times; and once if the server
had ended the transaction because the process was frozen. An error at COMMIT is ambiguous and never repeated here: on
:class:`CommitUncertain` the caller must read what was committed.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oldhost_sync.policy import limits
from oldhost_sync.store.errors import (
    GONE,
    OPTION_FORBIDS,
    RETRIABLE_ERRORS,
    AccessRefused,
    CommitUncertain,
    DatabaseUnavailable,
    RowLocked,
    StatementRefused,
    TransactionContended,
    error_code,
    is_demoted,
    translate,
)

T = TypeVar("T")

logger = logging.getLogger(__name__)

LOGGED_EVERY_SECONDS = 60.0
# Characters of a refused statement in the log.
STATEMENT_LENGTH_MAX = 120
# When each refusal was logged. There are only so many tables, rights and additions of others.
_logged_at: dict[str, float] = {}

# The variable is a number in older servers, a word in newer ones.
IS_READ_ONLY = "(CAST(@@read_only AS CHAR) NOT IN ('0', 'OFF') OR CAST(@@innodb_read_only AS CHAR) NOT IN ('0', 'OFF'))"
# For a compound statement.
REFUSE_READ_ONLY = (
    f"IF {IS_READ_ONLY} THEN SIGNAL SQLSTATE 'HY000' "
    f"SET MYSQL_ERRNO = {OPTION_FORBIDS}, MESSAGE_TEXT = 'the server is read-only'; END IF;"
)

_LOCK_WAIT_NOW = "SELECT @@SESSION.innodb_lock_wait_timeout"
_LOCK_WAIT = "SET SESSION innodb_lock_wait_timeout = %s"


def run_in_transaction(
    engine: Engine,
    fn: Callable[[Connection], T],
    *,
    attempts: int = limits.TRANSACTION_ATTEMPTS_MAX,
    waits_again: bool = True,
    pause: Callable[[float], None] = time.sleep,
    chance: Callable[[], float] = random.random,
) -> T:
    """Run `fn` in one transaction and commit; after a conflict in RETRIABLE_ERRORS repeat it, at most `attempts` times.
    Without `waits_again` not after a wait for a locked row, which takes seconds.

    All of that is repeated once if the server had ended the connection: it takes a process without CPU for a frozen one
    (`idle_transaction_timeout`). `fn` must have no effects except through its connection. `pause(seconds)` waits
    between attempts, `chance()` in [0, 1) adds jitter. Raises DatabaseUnavailable, TransactionContended,
    CommitUncertain, or what `fn` raised.
    """
    try:
        return _repeated(engine, fn, attempts, waits_again, pause, chance)
    except DatabaseUnavailable as error:
        if not _had_ended(error.__cause__):
            raise
    return _repeated(engine, fn, attempts, waits_again, pause, chance)


def _had_ended(error: BaseException | None) -> bool:
    """Whether the server had ended the connection before the statement could be sent; not so if the server hangs."""
    if not isinstance(error, DBAPIError) or error.orig is None or error_code(error) != GONE:
        return False
    return not isinstance(error.orig.__context__, TimeoutError)


def _repeated(
    engine: Engine,
    fn: Callable[[Connection], T],
    attempts: int,
    waits_again: bool,
    pause: Callable[[float], None],
    chance: Callable[[], float],
) -> T:
    for attempt in range(attempts):
        try:
            return _once(engine, fn)
        except TransactionContended as error:
            if attempt + 1 == attempts or (isinstance(error, RowLocked) and not waits_again):
                raise
        longest = min(limits.TRANSACTION_PAUSE_SECONDS * 2**attempt, limits.TRANSACTION_PAUSE_SECONDS_MAX)
        pause(longest * (0.5 + chance() / 2))
    raise AssertionError("attempts must be at least 1")


@contextmanager
def lock_wait(connection: Connection, seconds: int) -> Iterator[None]:
    """Meanwhile a statement waits at most `seconds` for a locked row; 0: not at all."""
    before = connection.exec_driver_sql(_LOCK_WAIT_NOW).scalar_one()
    connection.exec_driver_sql(_LOCK_WAIT, (seconds,))
    try:
        yield
    finally:
        if not connection.invalidated:
            connection.exec_driver_sql(_LOCK_WAIT, (before,))


def poll(engine: Engine, fn: Callable[[Connection], T]) -> T:
    """Read by `fn`, each of whose statements sees what is committed by then; `engine` must be in autocommit mode.

    A connection that was lost since its last use is noticed only now: then `fn` is repeated once with a new one. Raises
    DatabaseUnavailable, TransactionContended, or what `fn` raised.
    """
    try:
        with engine.connect() as connection:
            return fn(connection)
    except (DBAPIError, PoolTimeout) as error:
        if not (isinstance(error, DBAPIError) and error.connection_invalidated):
            _raise_known(error)
    try:
        with engine.connect() as connection:
            return fn(connection)
    except (DBAPIError, PoolTimeout) as error:
        _raise_known(error)


def _raise_known(error: DBAPIError | PoolTimeout) -> NoReturn:
    """Raise the store's own error for `error`, if there is one; else `error`."""
    known = translate(error)
    if known is None:
        raise error
    if isinstance(known, AccessRefused):
        _log(f"MariaDB refuses our account: {known}")
    if isinstance(known, StatementRefused) and isinstance(error, DBAPIError):
        _log(str(known), error.statement)
    raise known from error


def _log(refusal: str, statement: str | None = None) -> None:
    """Log it, once a minute: some callers are content to try again later, and nobody else would say so. `statement`:
    with placeholders, without values.
    """
    now = time.monotonic()
    if now >= _logged_at.get(refusal, float("-inf")) + LOGGED_EVERY_SECONDS:
        _logged_at[refusal] = now
        logger.warning(
            "%s%s", refusal, f", in {' '.join(statement.split())[:STATEMENT_LENGTH_MAX]}" if statement else ""
        )


def _once(engine: Engine, fn: Callable[[Connection], T]) -> T:
    try:
        with engine.connect() as connection:
            result = fn(connection)
            _commit(connection)
            return result
    except (DBAPIError, PoolTimeout) as error:
        _raise_known(error)


def _commit(connection: Connection) -> None:
    try:
        connection.commit()
    except DBAPIError as error:
        # A conflict at COMMIT is a refusal (by a cluster's certification); after any other error it may be committed.
        if error_code(error) in RETRIABLE_ERRORS:
            raise
        raise commit_uncertain(error) from error


def commit_uncertain(error: DBAPIError) -> CommitUncertain:
    return CommitUncertain(f"the outcome of COMMIT is unknown: {error.orig}", str(translate(error) or ""))


# ------------------------------------------------------------------------------------- several writes in one round trip

# With their COMMIT if they are the last. The server runs them in order and stops at the first that fails, or does not
# change the one row that it must: nothing after it runs, COMMIT neither. Why a row was not there, and what follows, is
# decided here. A packet is one compound statement, so a connection needs no right to send several statements at once,
# by which an injected value could do more harm; docs/decisions/round-trips.md has what else was measured.

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
