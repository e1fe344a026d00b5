"""How long a session waits for a locked row."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import Connection

from oldhost_sync.api import http_limits
from oldhost_sync.api.database import connect_for_api
from oldhost_sync.store.transactions import lock_wait

pytestmark = pytest.mark.mariadb


def wait_seconds(connection: Connection) -> int:
    return int(connection.exec_driver_sql("SELECT @@innodb_lock_wait_timeout").scalar_one())


def test_a_session_waits_again_as_long_as_before_a_shorter_wait(database_url: str) -> None:
    engine = connect_for_api(database_url)
    with engine.connect() as connection:
        with lock_wait(connection, 0):
            assert wait_seconds(connection) == 0
        assert wait_seconds(connection) == http_limits.DATABASE_LOCK_SECONDS
    engine.dispose()
