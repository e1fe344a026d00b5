"""The one way to connect to MariaDB: the settings of every session, and the requirements on the server.

READ COMMITTED, because under REPEATABLE READ a claim whose LIMIT exceeds the rows blocks every producer's INSERT. Each
new connection checks the server first, so no role works on a server that could lose commits, even after a fail-over.
Every wait is bounded, and the server's timeout is shorter than the client's, so that a slow statement ends with a clear
error and its connection stays usable. An idle transaction means a frozen process: the server ends it and frees its
locks. When the process resumes, its next statement or COMMIT finds the connection lost, and nothing of its transaction
is kept; if that was not at the COMMIT, the transaction is repeated.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any, ClassVar

import pymysql.connections
import pymysql.err
from sqlalchemy import create_engine as _create_engine
from sqlalchemy import event
from sqlalchemy.engine import URL, Engine, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from oldhost_sync.policy import limits
from oldhost_sync.store.database_tls import take_tls
from oldhost_sync.store.demotion import IS_READ_ONLY, leave_demoted, refuse_demoted
from oldhost_sync.store.errors import DatabaseUnavailable, UnsuitableServer
from oldhost_sync.store.transactions import ACCESS_ERRORS, error_code, translate

SQL_MODE = "STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
# Variables that change what our statements do. A connection keeps the server's values of the moment when it began; so
# that nobody's experiment outlives itself in our pools, they are set in each.
_PINNED_VARIABLES = (
    "tx_read_only = OFF, completion_type = 'NO_CHAIN', sql_safe_updates = OFF, sql_big_selects = ON, "
    "sql_select_limit = 18446744073709551615, unique_checks = ON, check_constraint_checks = ON, foreign_key_checks = ON"
)
MARIADB_VERSION_MIN = (10, 6)
PORT_MAX = 65_535

_FACTS = (
    "SELECT VERSION(), @@innodb_flush_log_at_trx_commit, @@log_bin, @@binlog_format, @@innodb_rollback_on_timeout, "
    f"@@max_allowed_packet, {IS_READ_ONLY}"
)
# PyMySQL's error for a packet that it can't read.
_MALFORMED = 2027
_DRIVERS = {"mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"}


def database_address(database_url: str) -> URL:
    """`database_url` as an address for pymysql; raises UnsuitableServer for another kind of database."""
    try:
        url = make_url(database_url)
    except (ArgumentError, ValueError) as error:  # a port that is no number
        raise UnsuitableServer(
            "the database address is not a URL; give it as mariadb+pymysql://user:password@host:3306/name"
        ) from error
    if url.drivername not in _DRIVERS:
        raise UnsuitableServer(f"the database must be MariaDB, not {url.drivername}; use mariadb+pymysql://…")
    if url.port is not None and not 0 < url.port <= PORT_MAX:
        raise UnsuitableServer(f"the database address has port {url.port}; a port is a number from 1 to {PORT_MAX}")
    if "charset" not in url.query:
        url = url.update_query_dict({"charset": "utf8mb4"})
    return url.set(drivername="mysql+pymysql")


def create_engine(
    database_url: str,
    *,
    pool_size: int = 4,
    statement_seconds: float = limits.STATEMENT_SECONDS_MAX,
    lock_wait_seconds: int = limits.LOCK_WAIT_SECONDS_MAX,
    idle_transaction_seconds: int = limits.IDLE_TRANSACTION_SECONDS_MAX,
    autocommit: bool = False,
) -> Engine:
    """An engine whose sessions follow the store's rules. Opens no connection yet.

    It is for the product's own processes: an application calls `record_change` on its own engine, in a transaction that
    may take any time. Each connection to an unsuitable server raises UnsuitableServer, and so does this function for an
    address whose TLS files can't be used.

    `autocommit`: for single statements that only read (:func:`oldhost_sync.store.transactions.look`): without a
    transaction and without a ping, so that each takes one round trip.
    """
    session = (
        f"SET SESSION time_zone = '+00:00', sql_mode = '{SQL_MODE}', "
        f"max_statement_time = {statement_seconds}, innodb_lock_wait_timeout = {lock_wait_seconds}, "
        f"idle_transaction_timeout = {idle_transaction_seconds}, {_PINNED_VARIABLES}"
    )
    slack = limits.CONNECTION_READ_SECONDS_MAX - limits.STATEMENT_SECONDS_MAX
    given = database_address(database_url)
    address, tls = take_tls(given)
    engine = _create_engine(
        address,
        isolation_level="AUTOCOMMIT" if autocommit else "READ COMMITTED",
        skip_autocommit_rollback=autocommit,
        # An error's text appears in logs and alerts; the values may be personal data.
        hide_parameters=True,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=limits.POOL_WAIT_SECONDS_MAX,
        pool_pre_ping=not autocommit,
        pool_recycle=limits.READING_CONNECTION_AGE_SECONDS_MAX if autocommit else limits.CONNECTION_AGE_SECONDS_MAX,
        # A closed Connection rolls back its transaction itself; a second ROLLBACK on return would waste a round trip.
        pool_reset_on_return=None,
        connect_args={
            "connect_timeout": limits.CONNECT_SECONDS_MAX,
            "read_timeout": statement_seconds + slack,
            "write_timeout": statement_seconds + slack,
            "init_command": session,
            **({} if tls is None else {"ssl": tls}),
        },
    )
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "connect", _look_at_server)
    event.listen(engine, "handle_error", _leave_refused)
    leave_demoted(engine)
    engine.url = given  # with its TLS options, for whoever connects to the same database again
    return engine


def _leave_refused(context: ExceptionContext) -> None:
    """Close a connection whose statement was refused: it would keep the rights that it began with, whatever is granted
    since.
    """
    if error_code(context.original_exception) in ACCESS_ERRORS:
        context.is_disconnect = True
        context.invalidate_pool_on_disconnect = False


class _Connection(pymysql.connections.Connection):
    """If the address has no TLS options, TLS is used if the server has it, and no certificate is checked.

    Even then, PyMySQL reads all of the machine's certificates for each connection: 25 ms of CPU before it even contacts
    the server, so that a write while the database is away cost twenty times more than necessary. So the context is made
    once.
    """

    _unchecked: ClassVar[ssl.SSLContext | None] = None

    def fileno(self) -> int:
        """For `poll`: the socket is readable once the server has closed the connection."""
        return int(self._sock.fileno())  # type: ignore[attr-defined]

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        if sslp:
            asked: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
            return asked
        if _Connection._unchecked is None:
            _Connection._unchecked = super()._create_ssl_ctx({})  # type: ignore[misc]
        return _Connection._unchecked


def _connect(_dialect: object, _record: object, arguments: list[Any], named: dict[str, Any]) -> _Connection:
    try:
        return _Connection(*arguments, **named)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise UnsuitableServer(f"the database address has an option that PyMySQL does not know: {error}") from error
    except pymysql.err.InternalError as error:
        raise pymysql.err.OperationalError(_MALFORMED, "what answers there is not MariaDB") from error


def check_server(engine: Engine) -> None:
    """Raise UnsuitableServer if the server does not meet the requirements, DatabaseUnavailable if it is away."""
    try:
        with engine.connect() as connection:
            _check(connection.exec_driver_sql(_FACTS).one())
    except DBAPIError as error:
        known = translate(error)
        raise known if known is not None else DatabaseUnavailable(str(error.orig)) from error


def _look_at_server(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_FACTS)
        facts = cursor.fetchone()
    _check(facts)  # if it raises, the pool closes the connection


def _check(facts: Sequence[Any]) -> None:
    *settings, is_read_only = facts
    _require_suitable(*settings)
    refuse_demoted(bool(is_read_only))


def _require_suitable(
    version: object, flush: Any, binlog: Any, binlog_format: object, rollback: Any, packet_bytes: Any
) -> None:
    if "mariadb" not in str(version).lower():
        raise UnsuitableServer(f"the server is {version}; it must be MariaDB {_dotted(MARIADB_VERSION_MIN)} or newer")
    if version_number(str(version)) < MARIADB_VERSION_MIN:
        raise UnsuitableServer(
            f"the server is {version}; upgrade it to MariaDB {_dotted(MARIADB_VERSION_MIN)} or newer"
        )
    if int(flush) != 1:
        raise UnsuitableServer(
            f"innodb_flush_log_at_trx_commit is {flush}; set it to 1, or a power failure may lose accepted changes"
        )
    if int(binlog) and str(binlog_format) == "STATEMENT":
        raise UnsuitableServer("binlog_format is STATEMENT; set it to ROW or MIXED, as READ COMMITTED needs")
    if int(rollback):
        raise UnsuitableServer(
            "innodb_rollback_on_timeout is ON; set it to OFF, or one locked row rolls back the whole transaction that "
            "records a fate"
        )
    if int(packet_bytes) < limits.PACKET_BYTES_MIN:
        raise UnsuitableServer(
            f"max_allowed_packet is {packet_bytes}; set it to 16M (the least is {limits.PACKET_BYTES_MIN}), or the "
            "server refuses large batches and drops their connection"
        )


def version_number(version: str) -> tuple[int, int]:
    """(10, 11) of '10.11.6-MariaDB-…' (and of the '5.5.5-' prefix that old replication clients need)."""
    major, minor = version.removeprefix("5.5.5-").split("-")[0].split(".")[:2]
    return int(major), int(minor)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(str(part) for part in version)
