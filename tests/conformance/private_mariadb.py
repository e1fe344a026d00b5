"""A MariaDB server of the tests' own: the product's embedded one, with a door for root and tables made in one step.

These tests look inside the server (who waits for whose lock, rows read), which only root may. What the product's
accounts may do has tests of its own.
"""

from __future__ import annotations

import getpass
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
from sqlalchemy.engine import Engine

from oldhost_sync.stack.mariadb import EmbeddedMariaDB
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.tables import metadata


class PrivateMariaDB(EmbeddedMariaDB):
    """`fresh_database` makes an empty database with the product's tables; `connect` is root's."""

    def fresh_database(self, *, pool_size: int = 8) -> tuple[Engine, str]:
        """A root's engine on a new database with the product's tables, and its name."""
        database = f"t_{uuid.uuid4().hex[:12]}"
        self.create_database(database)
        engine = create_engine(self.root_url(database), pool_size=pool_size)
        metadata.create_all(engine)
        return engine, database

    def root_url(self, database: str) -> str:
        return f"mysql+pymysql://{getpass.getuser()}@localhost/{database}?unix_socket={self._socket}"

    def connect(self) -> pymysql.Connection:
        return pymysql.connect(unix_socket=self._socket, user=getpass.getuser(), autocommit=True)


@contextmanager
def private_mariadb() -> Iterator[PrivateMariaDB]:
    """A server that a test may stop and kill as it likes."""
    with tempfile.TemporaryDirectory(prefix="oldhost-sync-db-") as folder, PrivateMariaDB(Path(folder)) as server:
        yield server
