"""A real MariaDB, and ledger rows that ended some days ago."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import Engine

from tests.conformance.private_mariadb import PrivateMariaDB


@pytest.fixture
def engine(mariadb_server: PrivateMariaDB) -> Iterator[Engine]:
    with mariadb_server.fresh_database() as engine:
        yield engine
