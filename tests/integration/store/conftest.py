"""A real MariaDB for the store's tests, and an empty database with the product's tables for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync import record_change
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store import writing
from tests.integration.store.procedure_door import record_by_procedure


@pytest.fixture
def engine(mariadb_server: PrivateMariaDB) -> Iterator[Engine]:
    with mariadb_server.fresh_database() as engine:
        yield engine


@pytest.fixture(params=[record_change, record_by_procedure], ids=["python", "procedure"])
def door(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> writing.Door:
    """A test that uses it runs once by each door: what `record` does there, the stored procedure does, too."""
    monkeypatch.setattr(writing, "the_door", request.param)
    chosen: writing.Door = request.param
    return chosen
