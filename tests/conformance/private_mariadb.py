"""A MariaDB server of the tests' own: the product's embedded one, with a door for root and databases to borrow.

These tests look inside the server (who waits for whose lock, rows read), which only root may. What the product's
accounts may do has tests of its own.
"""

from __future__ import annotations

import getpass
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
from sqlalchemy.engine import Engine

from oldhost_sync.stack.mariadb import DatabaseUrls, EmbeddedMariaDB
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.intake.procedure import install_procedures
from oldhost_sync.store.intake.rules import seed_rules
from oldhost_sync.store.schema_migration import DEFAULT_HOST, migrate
from oldhost_sync.store.tables import metadata
from oldhost_sync.store.transactions import run_in_transaction
from tests.conformance.database_pool import DatabasePool


class PrivateMariaDB(EmbeddedMariaDB):
    """Two ways to a database that looks new, and `connect` for root."""

    def __init__(self, folder: Path, binlog_format: str = "") -> None:
        super().__init__(folder)
        self._binlog_format = binlog_format
        self._migrated = DatabasePool("migrated", self._make_migrated, self.drop_database, self.connect)
        self._with_tables = DatabasePool("tables", self._make_with_tables, self.drop_database, self.connect)

    def _command(self, program: str) -> list[str]:
        """With a binary log, if a format is given."""
        log = [f"--log-bin={self.folder / 'binlog'}", f"--binlog-format={self._binlog_format}", "--server-id=1"]
        return super()._command(program) + (log if self._binlog_format else [])

    @contextmanager
    def migrated_database(self) -> Iterator[DatabaseUrls]:
        """As `oldhost-sync migrate` leaves it: `.app` for the roles, `.migration` for who changes tables."""
        with self._migrated.lent() as name:
            yield self.urls(name)

    @contextmanager
    def fresh_database(self) -> Iterator[Engine]:
        """A root's engine on a database with the product's tables, empty but for one host's rules."""
        with self._with_tables.lent() as name:
            # Who gets no CPU for three seconds would lose its transaction; that has tests of its own.
            engine = create_engine(self.root_url(name), idle_transaction_seconds=30)
            try:
                yield engine
            finally:
                engine.dispose()

    def root_url(self, database: str) -> str:
        return f"mysql+pymysql://{getpass.getuser()}@localhost/{database}?unix_socket={self._socket}"

    def as_root(self) -> list[str]:
        """The arguments by which MariaDB's own programs reach it."""
        return ["--no-defaults", f"--socket={self._socket}", f"--user={getpass.getuser()}"]

    def drop_database(self, name: str) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")

    def connect(self) -> pymysql.Connection:
        return pymysql.connect(unix_socket=self._socket, user=getpass.getuser(), autocommit=True, ssl_disabled=True)

    @contextmanager
    def variable(self, name: str, value: int) -> Iterator[None]:
        """A global variable has this value for connections that are made meanwhile."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT @@GLOBAL.{name}")
            before = cursor.fetchone()
            cursor.execute(f"SET GLOBAL {name} = %s", (value,))
            try:
                yield
            finally:
                cursor.execute(f"SET GLOBAL {name} = %s", before)

    @contextmanager
    def nobody_waits(self) -> Iterator[None]:
        """No transaction waits for another's row meanwhile: counted by the server, so a busy machine is no matter."""
        before = self.row_lock("waits")
        yield
        assert self.row_lock("waits") == before, "a transaction waited for a row that another one held"

    def row_lock(self, what: str) -> int:
        """`waits`: how often transactions had to wait for others' rows since the start; `time`: how many ms in all."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE %s", (f"Innodb_row_lock_{what}",))
            row = cursor.fetchone()
        assert row is not None
        return int(row[1])

    def _make_migrated(self, name: str) -> None:
        migrate(self.create_database(name).migration)

    def _make_with_tables(self, name: str) -> None:
        self.create_database(name)
        engine = create_engine(self.root_url(name))
        metadata.create_all(engine)
        run_in_transaction(engine, install_procedures)
        run_in_transaction(engine, lambda connection: seed_rules(connection, DEFAULT_HOST))
        engine.dispose()


@contextmanager
def private_mariadb(binlog_format: str = "") -> Iterator[PrivateMariaDB]:
    """A server that a test may stop and kill as it likes; with a binary log, if its format is given."""
    with (
        tempfile.TemporaryDirectory(prefix="oldhost-sync-db-") as folder,
        PrivateMariaDB(Path(folder), binlog_format) as server,
    ):
        yield server
