"""The one way to connect to MariaDB: the settings of every session, and what server, schema and host must be like.

READ COMMITTED, because under REPEATABLE READ a claim whose LIMIT exceeds the rows blocks every producer's INSERT. Each
new connection checks the server first, so no role works on a server that could lose commits, even after a fail-over.
Every wait is bounded, and the server's timeout is shorter than the client's, so that a slow statement ends with a clear
error and its connection stays usable. An idle transaction means a frozen process: the server ends it and frees its
locks. When the process resumes, its next statement or COMMIT finds the connection lost, and nothing of its transaction
is kept; if that was not at the COMMIT, the transaction is repeated.
"""

from __future__ import annotations

import select
import ssl
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, ClassVar

import pymysql.connections
import pymysql.err
from pymysql.constants import SERVER_STATUS
from sqlalchemy import create_engine as _create_engine
from sqlalchemy import event, text
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from oldhost_sync.policy import limits
from oldhost_sync.store.autogenerate import REVISION_TABLE
from oldhost_sync.store.errors import (
    ACCESS_ERRORS,
    GONE,
    DatabaseUnavailable,
    SchemaTooOld,
    UnsuitableServer,
    error_code,
    is_demoted,
    translate,
)
from oldhost_sync.store.intake.rules import require_hosts
from oldhost_sync.store.transactions import IS_READ_ONLY, REFUSE_READ_ONLY, run_in_transaction

SQL_MODE = "STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
# Variables that change what our statements do. A connection keeps the server's values of the moment when it began; so
# that nobody's experiment outlives itself in our pools, they are set in each.
_PINNED_VARIABLES = (
    "tx_read_only = OFF, completion_type = 'NO_CHAIN', sql_safe_updates = OFF, sql_big_selects = ON, "
    "sql_select_limit = 18446744073709551615, unique_checks = ON, check_constraint_checks = ON, foreign_key_checks = ON"
)
PORT_MAX = 65_535

_IN_TRANSACTION = SERVER_STATUS.SERVER_STATUS_IN_TRANS
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

    `autocommit`: for single statements that only read (:func:`oldhost_sync.store.transactions.poll`): without a
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
    event.listen(engine, "connect", _check_connection)
    event.listen(engine, "handle_error", _leave)
    engine.url = given  # with its TLS options, for whoever connects to the same database again
    return engine


def _leave(context: ExceptionContext) -> None:
    """Close a connection of which nothing good will come: to a demoted server, with all others of the pool; and one
    whose statement was refused, as it would keep the rights that it began with, whatever is granted since.
    """
    if is_demoted(context.original_exception):
        context.is_disconnect = True
    elif error_code(context.original_exception) in ACCESS_ERRORS:
        context.is_disconnect = True
        context.invalidate_pool_on_disconnect = False


class _Connection(pymysql.connections.Connection):
    """If the address has no TLS options, TLS is used if the server has it, and no certificate is checked.

    Even then, PyMySQL reads all of the machine's certificates for each connection: 25 ms of CPU before it even contacts
    the server, so that a write while the database is away cost twenty times more than necessary. So the context is made
    once.
    """

    server_status: int
    _unchecked: ClassVar[ssl.SSLContext | None] = None

    def fileno(self) -> int:
        """For `poll`: the socket is readable once the server has closed the connection."""
        return int(self._sock.fileno())  # type: ignore[attr-defined]

    def ping(self, reconnect: object = False) -> None:  # noqa: ARG002 - the driver's form
        """Whether the server has closed the connection, as far as this end knows: so it costs no round trip. A server
        that is away without having said so is found by the next statement, which would take as long as a ping.
        """
        silent = select.poll()  # `select` refuses descriptors from 1024 on
        silent.register(self, select.POLLIN)
        if silent.poll(0):
            raise pymysql.err.OperationalError(GONE, "the server has closed the connection")

    def query(self, sql: Any, unbuffered: bool = False) -> int:
        # Only an answer without rows says whether a transaction is open.
        self.server_status |= _IN_TRANSACTION
        return int(super().query(sql, unbuffered))

    def commit(self) -> None:
        """Nothing is sent if the last statement has committed (:class:`oldhost_sync.store.transactions.Packet`)."""
        if self.server_status & _IN_TRANSACTION:
            super().commit()

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


# ------------------------------------------------------------------------------------------------------------------ TLS

# PyMySQL takes the options of TLS in two ways that exclude each other: with `ssl_verify_identity` it ignores the
# `ssl_ca` of an SQLAlchemy address, so that a good certificate is refused, and without a CA it checks no name. So they
# are read here, and PyMySQL is given a finished context. If the address names a CA, certificate and name are checked.

_FILES = ("ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_cipher")
# The last two both say whether the host's name is checked: PyMySQL's option, and SQLAlchemy's.
_CHECKS = ("ssl_verify_cert", "ssl_verify_identity", "ssl_check_hostname")
_WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def take_tls(url: URL) -> tuple[URL, ssl.SSLContext | None]:
    """`url` without the TLS options, and their context; None if there are none.

    Raises UnsuitableServer for an invalid option or a file that can't be used.
    """
    given = {name: str(url.query[name]) for name in (*_FILES, *_CHECKS) if name in url.query}
    if not given:
        return url, None
    try:
        context = _context(given)
    except OSError as error:  # no such file, or not in PEM
        named = ", ".join(name for name in _FILES if name in given) or "the system's certificates"
        raise UnsuitableServer(f"the database address asks for TLS, but {named} can't be used: {error}") from error
    return url.difference_update_query(given), context


def _context(given: dict[str, str]) -> ssl.SSLContext:
    trusted: dict[str, Any] = {"cafile": given.get("ssl_ca"), "capath": given.get("ssl_capath")}
    checks = {name: _is_on(name, given[name]) for name in _CHECKS if name in given}
    named = checks.get("ssl_verify_identity", checks.get("ssl_check_hostname"))
    checked = checks.get("ssl_verify_cert", bool(named) or any(trusted.values()))
    if named and not checked:
        raise UnsuitableServer("the database address turns ssl_verify_cert off: then ssl_verify_identity can't work")
    context = ssl.create_default_context(**trusted)
    # The certificates that MariaDB generates itself do not strictly follow RFC 5280.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = checked and named is not False
    context.verify_mode = ssl.CERT_REQUIRED if checked else ssl.CERT_NONE
    if "ssl_cert" in given:
        context.load_cert_chain(given["ssl_cert"], given.get("ssl_key"))
    if "ssl_cipher" in given:
        context.set_ciphers(given["ssl_cipher"])
    return context


def _is_on(name: str, value: str) -> bool:
    is_on = _WORDS.get(value.lower())
    if is_on is None:
        raise UnsuitableServer(f"the database address has {name}={value}; give it as true or false")
    return is_on


# ------------------------------------------------------------------------------------------------------ demoted servers

# A server that was demoted lives on and answers pings, but its rows grow old. After a planned switchover it is
# read-only; cut off from its Galera cluster it refuses every statement. Where an address leads to another server from
# now on, only new connections get there. So such a server counts as away: a new connection to it is refused, one whose
# statement it refuses is closed with all others of its pool, and what only reads for long asks first whether it is
# read-only.

_REFUSE = f"BEGIN NOT ATOMIC {REFUSE_READ_ONLY} END"


def require_primary(connection: Connection) -> None:
    """Raise DBAPIError, and close the connections of its pool, if the server was demoted."""
    connection.exec_driver_sql(_REFUSE)


# ----------------------------------------------------------------------------------------------------------- the server

MARIADB_VERSION_MIN = (10, 6)
_FACTS = (
    "SELECT VERSION(), @@innodb_flush_log_at_trx_commit, @@log_bin, @@binlog_format, @@innodb_rollback_on_timeout, "
    f"@@max_allowed_packet, {IS_READ_ONLY}"
)


def check_server(engine: Engine) -> None:
    """Raise UnsuitableServer if the server does not meet the requirements, DatabaseUnavailable if it is away."""
    try:
        with engine.connect() as connection:
            _check(connection.exec_driver_sql(_FACTS).one())
    except DBAPIError as error:
        known = translate(error)
        raise known if known is not None else DatabaseUnavailable(str(error.orig)) from error


def _check_connection(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_FACTS)
        facts = cursor.fetchone()
    _check(facts)  # if it raises, the pool closes the connection


def _check(facts: Sequence[Any]) -> None:
    *settings, is_read_only = facts
    _require_suitable(*settings)
    if is_read_only:
        raise DatabaseUnavailable("the server is read-only: a replica, or a primary that is being replaced")


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


# ----------------------------------------------------------------------------------------------------- schema and hosts

# A release works with its own schema and with the next one, because what a migration removes is no longer used by the
# release before (the rule is in CONTRIBUTING.md). So an older schema is refused, a newer one is not. `oldhost-sync
# migrate` registers a host by writing its rules: otherwise a mistyped name would show empty books, and begin a ledger.


_REVISION = text(f"SELECT MAX(version_num) FROM {REVISION_TABLE}")


@cache
def needed_revision() -> str:
    """The schema's revision that this release was written for: the number of its newest migration."""
    versions = resources.files("migrations").joinpath("versions")
    return max(file.name[:4] for file in versions.iterdir() if file.name[:4].isdigit())


def require(connection: Connection, hosts: Sequence[str]) -> None:
    """`hosts`: SYNC_HOST first. Raises SchemaTooOld or UnknownHost. Without our tables, the database's own error is
    raised.
    """
    revision = connection.execute(_REVISION).scalar() or "none"
    if revision < needed_revision() or revision == "none":
        raise SchemaTooOld(
            f"the database's schema is at revision {revision}, and this release needs {needed_revision()}: "
            "run `oldhost-sync migrate` of this release first"
        )
    require_hosts(connection, hosts[:1], named_by="SYNC_HOST")
    require_hosts(connection, hosts[1:], named_by="SYNC_OLDHOST_URLS or SYNC_HOSTS_FILE")


def check_database(engine: Engine, hosts: Sequence[str]) -> None:
    """:func:`require` in a transaction of its own. Also raises DatabaseUnavailable."""
    run_in_transaction(engine, lambda connection: require(connection, hosts))


# ----------------------------------------------------------------------------------------------------- whether it works

# Of the other indexes it would read all entries that a long transaction (a `resolve` of many) has not committed.
_READ = text("SELECT 1 FROM outbox_events FORCE INDEX (PRIMARY) LIMIT 1")
# They change no row, but are blocked or refused as a write to that table is (a locked table, a read-only server). Only
# the commit of a changed row would show that none can be committed; the writes that are refused then tell of it.
_WRITES = {
    "api": "UPDATE outbox_events SET source = source WHERE id = 0",
    "relay": "UPDATE relay_lease SET owner = owner WHERE host = ''",
    "worker": "UPDATE nonce_ledger SET owner = owner WHERE host = ''",
}


def check_reads(connection: Connection) -> None:
    """Raises if the database is away, or its tables are missing."""
    connection.execute(_READ)


def check_writes(connection: Connection, role: str) -> None:
    """Raises if the database accepts no writes of this role."""
    connection.execute(text(f"SET STATEMENT max_statement_time = 1 FOR {_WRITES[role]}"))
