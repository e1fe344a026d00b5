"""A stage on which one transaction of the product is hurt: a database, a way to it that can be cut, and a rival."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from oldhost_sync.stack.mariadb import DatabaseUrls, EmbeddedMariaDB
from oldhost_sync.store.engine import create_engine
from tests.faults.database_proxy import DatabaseProxy


@pytest.fixture
def proxy(mariadb_server: EmbeddedMariaDB) -> Iterator[DatabaseProxy]:
    with DatabaseProxy(mariadb_server.port) as proxy:
        yield proxy


@pytest.fixture
def hurt(database: DatabaseUrls, proxy: DatabaseProxy) -> Iterator[Engine]:
    """The product's engine, on the way that can be cut; it waits 1 s for a lock instead of 4."""
    engine = create_engine(proxy.url(database.app))

    def be_impatient(connection: object, _: object) -> None:
        with connection.cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")

    event.listen(engine, "connect", be_impatient)
    yield engine
    engine.dispose()
