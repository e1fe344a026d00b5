"""The errors that the store raises, and which error of MariaDB is which of them. For each: where the fault is, and
whether a retry helps.

StoreError
├── DatabaseUnavailable   the database; yes, later (nothing was committed)
│   ├── StatementTooSlow      this statement; yes, later (nothing was committed)
│   ├── TlsFailed             a certificate; yes, when it was corrected (nothing was committed)
│   ├── AccessRefused         the account; yes, when it was corrected (nothing was committed)
│   └── StatementRefused      the platform: the database was changed; yes, when it was corrected (nothing was committed)
├── TransactionContended  no fault; yes, later (nothing was committed)
│   └── RowLocked             who holds the row; yes, later (nothing was committed)
├── CommitUncertain       the network; look it up by its unique key first (it may have been committed)
├── UnsuitableServer      the platform; no, not before the server is set up as the message says
├── SchemaTooOld          the platform; no, not before `oldhost-sync migrate` ran
├── MappingVersionTaken   the operator; no, not under this version
├── TransactionNeeded     the caller; no, not on a connection in autocommit mode
├── UnknownHost           who named it; no, not under this name
├── UnknownName           the operator; no, not under this name
└── InvalidChange         the caller; no, not with this change
    ├── IdempotencyConflict   the caller; no, not under this key
    ├── EntityRefused         the caller; yes, when the other change of its entity is corrected
    └── ChangesRefused        the caller; see each result (intake/batch_recorder.py)

MariaDB's errors are told apart by what is to be done: repeat the transaction, refuse the values, wait for the server,
mend the account, migrate. A number that is in no list is a statement that is refused as it is: somebody changed the
database. An error at COMMIT is none of these: `transactions.py` has it.
"""

# ruff: noqa: N818 - a name says what happened, as `except DatabaseUnavailable` reads

from __future__ import annotations

import re
import ssl

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InternalError, NotSupportedError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout


class StoreError(Exception):
    """The base of all errors that the store raises itself."""


class DatabaseUnavailable(StoreError):
    """MariaDB is unreachable, shutting down, full or too slow. Nothing was committed; try again later."""


class StatementTooSlow(DatabaseUnavailable):
    """MariaDB ended a statement that took too long. It answers, so other statements may work."""


class TlsFailed(DatabaseUnavailable):
    """The server's certificate or ours was refused; the message says why."""


class AccessRefused(DatabaseUnavailable):
    """MariaDB refuses our account, or what it may do. New connections work as soon as that was corrected."""


class StatementRefused(DatabaseUnavailable):
    """MariaDB refuses a statement of ours as it is: somebody added a column or a trigger, or a limit of its own. Others
    may work.
    """


class TransactionContended(StoreError):
    """All attempts ended in a deadlock or a lock wait timeout. Nothing was committed; try again later."""


class RowLocked(TransactionContended):
    """Another transaction held a row for longer than we wait."""


class CommitUncertain(StoreError):
    """COMMIT was not confirmed: it may have been committed. Look it up by its unique key before repeating.

    `reason`: why, if that is known, in words that anybody may read.
    """

    def __init__(self, message: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class UnsuitableServer(StoreError):
    """The server's settings do not allow the product's promises; the message says what to set."""


class SchemaTooOld(StoreError):
    """The database's schema is older than this release needs; the message says what to run."""


class UnknownHost(StoreError):
    """No such host was registered; the message says which were."""


class UnknownName(StoreError):
    """Nothing has this name; the message says what was looked for."""


class MappingVersionTaken(StoreError):
    """The host has another mapping of this name and version; the message says what to do."""


class TransactionNeeded(StoreError):
    """The connection commits each statement, so a change could be recorded although its caller fails."""


class InvalidChange(StoreError):
    """The change is outside the limits or has a field of the wrong type; the message says which `field` and why."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class IdempotencyConflict(InvalidChange):
    """The idempotency key was used for another change. Use a new key for a new change."""


class EntityRefused(InvalidChange):
    """Another change of the same batch and entity was refused: item `because_of`, counted from 0. This one is valid; it
    will be recorded if it is submitted without the other one, or after that was corrected.
    """

    def __init__(self, because_of: int) -> None:
        super().__init__(f"not recorded: item {because_of} of the batch is of the same entity and was refused")
        self.because_of = because_of


# ----------------------------------------------------------------------------------------------------- MariaDB's errors

LOCK_WAIT_TIMEOUT = 1205
# The whole transaction may be repeated; nothing of it was committed.
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

# The account, or its right to one statement, is refused: by mistake, during maintenance, or until somebody grants it.
_NO_RIGHT_ERRORS = {
    1142: "access denied to a table",
    1143: "access denied to a column",
    1227: "a privilege is missing",
    1370: "access denied to a routine",
}
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
# The server is not the one to work with now; another one may be, at the same address.
_NOT_PRIMARY_ERRORS = {
    OPTION_FORBIDS: "server is read-only",
    1036: "table is read-only, as with innodb_read_only",
    1047: "cluster node not ready",
    1836: "server is read-only",
}

_STATEMENT_TOO_SLOW, _INTERRUPTED = 1969, 1317
# PyMySQL's: a statement could not be sent; the server has no TLS, and the address asks for it.
GONE, _NO_TLS = 2006, 2026
# The server can't run the statement now; nothing is wrong with the statement. Below 1000 are the errors of the server's
# own files and memory.
_FILES_BELOW, _FILES = 1000, "the server can't use its files or memory (usually its disk is full)"
AWAY_ERRORS = _NOT_PRIMARY_ERRORS | {
    code: words
    for words, codes in {
        "connection lost": (0, 1158, 1159, 1160, 1161, 1927, 2013, 2014),
        "server has gone away": (GONE,),
        "can't connect": (2002, 2003),
        "malformed packet": (2027,),
        "server shutdown in progress": (1053,),
        "statement took too long": (_STATEMENT_TOO_SLOW,),
        "statement interrupted": (_INTERRUPTED,),
        "disk full": (1021,),
        "table full (usually its disk)": (1114,),
        "error writing a file, or of the storage engine": (1026, 1030, 1180),
        "out of memory": (1037, 1038, 1041),
        "too many connections, threads, locks or transactions": (1040, 1135, 1203, 1206, 1226, 1637),
        "host blocked after connection errors": (1129,),
        "a read lock is held": (1223,),
    }.items()
    for code in codes
}
# Of one statement only; others may succeed.
ONE_STATEMENT_ERRORS = {_INTERRUPTED, _STATEMENT_TOO_SLOW, *_NO_RIGHT_ERRORS}

# Errors whose text may name values: a trigger's or routine's own refusal, and those of conversions.
_SIGNALLED = 1644
_NAME_VALUES = {1292, 1365, 1366, 1367, 1411, 1426, 1525, 1690, 1918, 3020}
# "UPDATE command denied to user 'a'@'b' for table `c`.`units`"
_DENIED = re.compile(r"^([A-Z, ]+) command denied to user .*?(\w+)\W*$")


def error_code(error: BaseException) -> int | None:
    """MariaDB's number for `error`, or None."""
    original = error.orig if isinstance(error, DBAPIError) else error
    first = original.args[0] if original is not None and original.args else None
    if isinstance(error, DBAPIError) and not isinstance(first, int):
        # Some of the drivers that applications use have it apart from the arguments.
        first = getattr(original, "errno", None)
    return first if isinstance(first, int) else None


def translate(error: Exception) -> StoreError | None:
    """The store's own error for `error`; None if the values or the schema are at fault, or it is not MariaDB's."""
    if isinstance(error, PoolTimeout):
        return DatabaseUnavailable("no database connection became free in time")
    if not isinstance(error, DBAPIError):
        return None
    if refused := _refused_by_tls(error):
        return TlsFailed(f"TLS to the database failed: {refused}")
    return _listed(error) or _unlisted(error)


def _listed(error: DBAPIError) -> StoreError | None:
    code = error_code(error)
    if code in RETRIABLE_ERRORS:
        contended = RowLocked if code == LOCK_WAIT_TIMEOUT else TransactionContended
        return contended(f"{RETRIABLE_ERRORS[code]} (MariaDB {code})")
    if code in ACCESS_ERRORS:
        return AccessRefused(f"{ACCESS_ERRORS[code]}{_missing_right(error)} (MariaDB {code})")
    if code is not None and (code in AWAY_ERRORS or code < _FILES_BELOW):
        away = StatementTooSlow if code == _STATEMENT_TOO_SLOW else DatabaseUnavailable
        return away(f"{_option_that_forbids(error) or AWAY_ERRORS.get(code, _FILES)} (MariaDB {code})")
    return None


def _unlisted(error: DBAPIError) -> StoreError | None:
    if error.connection_invalidated:
        return DatabaseUnavailable("the database connection was lost")
    code = error_code(error)
    has_own_meaning = code is None or code in NOT_MIGRATED_ERRORS or is_the_values_fault(error)
    if isinstance(error, OperationalError | InternalError | NotSupportedError) and not has_own_meaning:
        return StatementRefused(in_words(error))
    return None


def is_the_values_fault(error: DBAPIError) -> bool:
    """Whether the written values are at fault: these would be refused again, while others may be accepted."""
    return isinstance(error, DataError | IntegrityError) or error_code(error) == CHECK_VIOLATED


def is_passing(error: StoreError | DBAPIError | PoolTimeout) -> bool:
    """Whether the statement may work later by itself: the server is away or busy."""
    known = error if isinstance(error, StoreError) else translate(error)
    return isinstance(known, DatabaseUnavailable | TransactionContended) and not isinstance(known, StatementRefused)


def is_demoted(error: BaseException) -> bool:
    """Whether the server refused a statement because it is not the primary, and so refuses all others."""
    return error_code(error) in _NOT_PRIMARY_ERRORS and not _option_that_forbids(error)


def in_words(error: Exception) -> str:
    """The error for people: MariaDB's own text, without the statement, and without values that it may name."""
    if not isinstance(error, DBAPIError):
        return str(error)
    code = error_code(error)
    if code is None or error.orig is None or code in _NAME_VALUES or is_the_values_fault(error):
        return f"MariaDB refuses a statement (MariaDB {code})"
    if code == _SIGNALLED:
        return f"a trigger or routine of the database refuses a statement (MariaDB {code})"
    return f"{error.orig.args[-1]} (MariaDB {code})"


def _option_that_forbids(error: BaseException) -> str:
    """Which of the server's options forbids the statement; empty if none does, or none but `read-only`."""
    original = error.orig if isinstance(error, DBAPIError) else error
    if error_code(error) != OPTION_FORBIDS or original is None:
        return ""
    match = _OPTION.search(str(original.args[-1]))
    return f"the server's option {match[1]} forbids it" if match and match[1] != "read-only" else ""


def _missing_right(error: DBAPIError) -> str:
    """The right and the table that MariaDB's text names, but not the account, which is nobody's business."""
    match = _DENIED.search(str(error.orig.args[-1])) if error.orig is not None and error.orig.args else None
    return f": {match[1]} on {match[2]}" if match else ""


def _refused_by_tls(error: DBAPIError) -> str:
    """What is wrong with the server's certificate or ours; empty if TLS is not the cause."""
    if error_code(error) == _NO_TLS:
        return "the server does not offer it"
    cause = getattr(error.orig, "original_exception", None)
    if not isinstance(cause, ssl.SSLError):
        return ""
    return str(getattr(cause, "verify_message", "") or cause.reason or "the connection was refused")
