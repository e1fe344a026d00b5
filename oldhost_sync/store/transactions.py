"""The one way to run a transaction: on a conflict the whole function is repeated; otherwise it raises a clear error.

After a deadlock the server has rolled back the transaction; repeating only the last statement would commit half of it
(trap 20). So the whole function is repeated, in a new transaction, a bounded number of times; and once if the server
had ended the transaction because the process was frozen. An error at COMMIT is ambiguous and never repeated here: on
:class:`CommitUncertain` the caller must read what was committed.
"""

from __future__ import annotations

import logging
import random
import re
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InternalError, NotSupportedError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oldhost_sync.policy import limits
from oldhost_sync.store.errors import (
    AccessRefused,
    CommitUncertain,
    DatabaseUnavailable,
    RowLocked,
    StatementRefused,
    StatementTooSlow,
    StoreError,
    TlsFailed,
    TransactionContended,
)

T = TypeVar("T")

logger = logging.getLogger(__name__)

TOLD_EVERY_SECONDS = 60.0
# Characters of a refused statement in the log.
STATEMENT_TOLD = 120
# When each refusal was logged. There are only so many tables, rights and additions of others.
_told_at: dict[str, float] = {}

_LOCK_WAIT_NOW = "SELECT @@SESSION.innodb_lock_wait_timeout"
_LOCK_WAIT = "SET SESSION innodb_lock_wait_timeout = %s"

LOCK_WAIT_TIMEOUT = 1205
STATEMENT_TOO_SLOW = 1969
# The database errors after which the whole transaction may be repeated; nothing of it was committed.
RETRIABLE_ERRORS = {
    1020: "record has changed since last read",
    LOCK_WAIT_TIMEOUT: "lock wait timeout",
    1213: "deadlock",
    1412: "table definition has changed",
    # A long INSERT … SELECT holds the table's AUTO-INC lock; other servers report a lock wait.
    1467: "no auto-increment value could be read",
}

DUPLICATE_KEY = 1062
NULL_REFUSED = 1048
# A violated CHECK raises an OperationalError, like the errors of a failing server.
CHECK_VIOLATED = 4025
# The account, or the right to one statement, is refused: by mistake, during maintenance, or until somebody grants it.
_NO_RIGHT_ERRORS = {
    1142: "access denied to a table",
    1143: "access denied to a column",
    1227: "a privilege is missing",
    1370: "access denied to a routine",
}
# "UPDATE command denied to user 'a'@'b' for table `c`.`units`"
_DENIED = re.compile(r"^([A-Z, ]+) command denied to user .*?(\w+)\W*$")
ACCESS_ERRORS = _NO_RIGHT_ERRORS | {
    1044: "access denied to the database",
    1045: "access denied: wrong account or password",
    1049: "unknown database",
    1184: "the server closes new connections (its init_connect fails)",
    1820: "the account's password must be changed",
    1862: "the account's password has expired",
    4151: "the account is locked",
}
# Faults of the setup, found by the first statement.
NOT_MIGRATED_ERRORS = {1054: "a column is missing", 1146: "a table is missing"}

# "The MariaDB server is running with the --read-only option so it cannot execute this statement"
OPTION_FORBIDS = 1290
_OPTION = re.compile(r"the --([\w-]+)\S* option")
READ_ONLY_ERRORS = {
    OPTION_FORBIDS: "server is read-only",
    1036: "table is read-only, as with innodb_read_only",
    1836: "server is read-only",
}
# The server is not the one to work with now; another one may be, at the same address.
NOT_PRIMARY_ERRORS = READ_ONLY_ERRORS | {1047: "cluster node not ready"}

# Errors whose text may name values: a trigger's or routine's own refusal, and those of conversions.
_SIGNALLED = 1644
_NAME_VALUES = {1292, 1365, 1366, 1367, 1411, 1426, 1525, 1690, 1918, 3020}

# Of one statement only; others may succeed.
ONE_STATEMENT_ERRORS = {1317, STATEMENT_TOO_SLOW, *_NO_RIGHT_ERRORS}

# PyMySQL's error for a server without TLS, if the address asks for it.
_NO_TLS = 2026
# PyMySQL's error for a statement that could not be sent.
_GONE = 2006

# Errors of a server that can't run the statement now; nothing is wrong with the statement.
UNAVAILABLE_ERRORS = NOT_PRIMARY_ERRORS | {
    0: "connection closed",
    # Below 1000 are the errors of the server's own files.
    1: "can't create a file",
    2: "error reading a file",
    3: "error writing a file (usually its disk is full)",
    4: "error closing a file",
    5: "out of memory",
    14: "can't change a file's size",
    20: "disk full",
    23: "too many open files",
    27: "error syncing a file",
    1021: "disk full",
    1026: "error writing a file",
    1030: "error of the storage engine",
    1037: "out of memory",
    1038: "out of memory for sorting",
    1040: "too many connections",
    1041: "out of memory",
    1053: "server shutdown in progress",
    1114: "table full (usually its disk)",
    1129: "host blocked after connection errors",
    1135: "can't create a new thread",
    1158: "network: read error",
    1159: "network: read timeout",
    1160: "network: write error",
    1161: "network: write timeout",
    1180: "error during COMMIT",
    1203: "too many connections of this user",
    1206: "too many locks",
    1223: "a read lock is held",
    1226: "this user's limit is used up",
    1317: "statement interrupted",
    1637: "too many active transactions",
    1927: "connection killed",
    STATEMENT_TOO_SLOW: "statement took too long",
    2002: "can't connect",
    2003: "can't connect",
    _GONE: "server has gone away",
    2013: "connection lost",
    2014: "connection out of step",
    2027: "malformed packet",
}


def error_code(error: BaseException) -> int | None:
    """MariaDB's number for `error`, or None."""
    original = error.orig if isinstance(error, DBAPIError) else error
    first = original.args[0] if original is not None and original.args else None
    if isinstance(error, DBAPIError) and not isinstance(first, int):
        # Some of the drivers that applications use have it apart from the arguments.
        first = getattr(original, "errno", None)
    return first if isinstance(first, int) else None


def told(error: Exception) -> str:
    """The error in words for people: MariaDB's own text, without the statement, and without values that it may name."""
    if not isinstance(error, DBAPIError):
        return str(error)
    code = error_code(error)
    if code is None or error.orig is None or code in _NAME_VALUES or is_the_values_fault(error):
        return f"MariaDB refuses a statement (MariaDB {code})"
    if code == _SIGNALLED:
        return f"a trigger or routine of the database refuses a statement (MariaDB {code})"
    return f"{error.orig.args[-1]} (MariaDB {code})"


def is_the_values_fault(error: DBAPIError) -> bool:
    """Whether the written values are at fault: these would be refused again, while others may be accepted."""
    return isinstance(error, DataError | IntegrityError) or error_code(error) == CHECK_VIOLATED


def translate(error: Exception) -> StoreError | None:
    """The store's own error for a conflict or an unavailable server; None when it is neither."""
    if isinstance(error, PoolTimeout):
        return DatabaseUnavailable("no database connection became free in time")
    if not isinstance(error, DBAPIError):
        return None
    if refused := _refused_by_tls(error):
        return TlsFailed(f"TLS to the database failed: {refused}")
    return _known_by_number(error) or _known_by_kind(error)


def _known_by_number(error: DBAPIError) -> StoreError | None:
    code = error_code(error)
    if code in RETRIABLE_ERRORS:
        contended = RowLocked if code == LOCK_WAIT_TIMEOUT else TransactionContended
        return contended(f"{RETRIABLE_ERRORS[code]} (MariaDB {code})")
    if code in UNAVAILABLE_ERRORS:
        kind = StatementTooSlow if code == STATEMENT_TOO_SLOW else DatabaseUnavailable
        return kind(f"{_option_that_forbids(error) or UNAVAILABLE_ERRORS[code]} (MariaDB {code})")
    if code in ACCESS_ERRORS:
        return AccessRefused(f"{ACCESS_ERRORS[code]}{_missing_right(error)} (MariaDB {code})")
    return None


def _known_by_kind(error: DBAPIError) -> StoreError | None:
    if error.connection_invalidated:
        return DatabaseUnavailable("the database connection was lost")
    code = error_code(error)
    has_own_meaning = code is None or code in NOT_MIGRATED_ERRORS or is_the_values_fault(error)
    if isinstance(error, OperationalError | InternalError | NotSupportedError) and not has_own_meaning:
        return StatementRefused(told(error))
    return None


def _option_that_forbids(error: BaseException) -> str:
    """Which of the server's options forbids the statement; empty if none does, or none but `read-only`."""
    original = error.orig if isinstance(error, DBAPIError) else error
    if error_code(error) != OPTION_FORBIDS or original is None:
        return ""
    found = _OPTION.search(str(original.args[-1]))
    return f"the server's option {found[1]} forbids it" if found and found[1] != "read-only" else ""


def is_demoted(error: BaseException) -> bool:
    """Whether the server refused a statement because it is not the primary, and so refuses all others."""
    return error_code(error) in NOT_PRIMARY_ERRORS and not _option_that_forbids(error)


def _missing_right(error: DBAPIError) -> str:
    """The right and the table that MariaDB's text names, but not the account, which is nobody's business."""
    found = _DENIED.search(str(error.orig.args[-1])) if error.orig is not None and error.orig.args else None
    return f": {found[1]} on {found[2]}" if found else ""


def is_passing(error: StoreError | DBAPIError | PoolTimeout) -> bool:
    """Whether the statement may work later by itself: the server is away or busy."""
    known = error if isinstance(error, StoreError) else translate(error)
    return isinstance(known, DatabaseUnavailable | TransactionContended) and not isinstance(known, StatementRefused)


def _refused_by_tls(error: DBAPIError) -> str:
    """What is wrong with the server's certificate or ours; empty if TLS is not the cause."""
    if error_code(error) == _NO_TLS:
        return "the server does not offer it"
    cause = getattr(error.orig, "original_exception", None)
    if not isinstance(cause, ssl.SSLError):
        return ""
    return str(getattr(cause, "verify_message", "") or cause.reason or "the connection was refused")


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
    if not isinstance(error, DBAPIError) or error.orig is None or error_code(error) != _GONE:
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


def look(engine: Engine, fn: Callable[[Connection], T]) -> T:
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
        _tell(f"MariaDB refuses our account: {known}")
    if isinstance(known, StatementRefused) and isinstance(error, DBAPIError):
        _tell(str(known), error.statement)
    raise known from error


def _tell(refusal: str, statement: str | None = None) -> None:
    """Log it, once a minute: some callers are content to try again later, and nobody else would tell. `statement`: with
    placeholders, without values.
    """
    now = time.monotonic()
    if now >= _told_at.get(refusal, float("-inf")) + TOLD_EVERY_SECONDS:
        _told_at[refusal] = now
        logger.warning("%s%s", refusal, f", in {' '.join(statement.split())[:STATEMENT_TOLD]}" if statement else "")


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
        reason = str(translate(error) or "")
        raise CommitUncertain(f"the outcome of COMMIT is unknown: {error.orig}", reason) from error
