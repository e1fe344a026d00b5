"""A real MariaDB for the relay's tests; the writer is a list that may be told to fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import Engine

from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.relay.listening import looking


@pytest.fixture
def engine(mariadb_server: PrivateMariaDB) -> Iterator[Engine]:
    with mariadb_server.fresh_database() as engine:
        yield engine


@pytest.fixture
def looks(engine: Engine) -> Iterator[Engine]:
    with looking(engine) as looks:
        yield looks
