"""A real MariaDB for the relay's tests; the writer is a list that may be told to fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import Engine

from tests.conformance.private_mariadb import PrivateMariaDB, private_mariadb


@pytest.fixture(scope="session")
def server() -> Iterator[PrivateMariaDB]:
    with private_mariadb() as started:
        yield started


@pytest.fixture
def engine(server: PrivateMariaDB) -> Iterator[Engine]:
    engine, _ = server.fresh_database()
    yield engine
    engine.dispose()
