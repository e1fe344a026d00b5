"""The whole product for each test: real servers for the session, a database, a simulator and processes for the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oldhost_sync.stack.mariadb import DatabaseUrls, EmbeddedMariaDB
from oldhost_sync.stack.temporal import EmbeddedTemporal
from tests.faults.database_proxy import DatabaseProxy
from tests.faults.product import Product


@pytest.fixture(scope="session")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedTemporal]:
    """A dev server with a database file, so that a test may kill it and start it again."""
    with EmbeddedTemporal(tmp_path_factory.mktemp("temporal")) as server:
        yield server


@pytest.fixture
def product(tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal) -> Iterator[Product]:
    """OldHost runs; the test starts the roles it needs."""
    with Product(tmp_path, database, temporal.address) as product:
        product.start_simulator()
        yield product


@pytest.fixture
def proxy(mariadb_server: EmbeddedMariaDB) -> Iterator[DatabaseProxy]:
    """A way to MariaDB on which a test can stop a process at an exact statement."""
    with DatabaseProxy(mariadb_server.port) as proxy:
        yield proxy
