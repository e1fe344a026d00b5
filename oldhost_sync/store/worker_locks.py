"""The advisory lock that a worker holds while its process lives, so that another one notices at once when it ends.

The kernel closes a killed process's connections, and MariaDB then releases the locks of its sessions. Of a machine that
lost its network or its power MariaDB hears nothing: it ends the silent session after a time. The lock is only a hint,
since a living worker can lose it with its connection; a cluster's nodes do not share it, either.
"""

from __future__ import annotations

import logging
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oldhost_sync.store.demotion import require_primary
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.transactions import is_passing

logger = logging.getLogger(__name__)

# Lock names are server-wide and have at most 64 characters; a worker's name is unique.
LOCK_NAME = "CONCAT('oldhost-sync-worker:', MD5({}))"
_TAKE = f"SELECT GET_LOCK({LOCK_NAME.format('%s')}, %s)"
_RELEASE = f"DO RELEASE_LOCK({LOCK_NAME.format('%s')})"
# A holder that is silent for longer than the second is disconnected; it says something after the first.
SAID_EVERY_SECONDS, SILENT_SECONDS_MAX = 4, 10
TAKE_SECONDS = 2
AGAIN_SECONDS_MIN, AGAIN_SECONDS_MAX = 0.05, 2.0


def hold(engine: Engine, worker: str, until: threading.Event) -> None:
    """Hold the lock of `worker` until the event is set; take it again after a lost connection.

    Raises errors that do not pass by themselves.
    `engine` must be in autocommit mode, and have a connection that nothing else needs.
    """
    pause = AGAIN_SECONDS_MIN
    while not until.is_set():
        try:
            with _closed_at_the_end(engine) as connection:
                connection.exec_driver_sql(f"SET SESSION wait_timeout = {SILENT_SECONDS_MAX}")
                if connection.exec_driver_sql(_TAKE, (worker, TAKE_SECONDS)).scalar_one() == 1:
                    pause = AGAIN_SECONDS_MIN
                    _stay(connection, until)
        except (StoreError, DBAPIError, PoolTimeout) as error:
            if not is_passing(error):
                raise
            logger.debug("the lock of worker %s is lost: %s", worker, error)
            until.wait(pause)
            pause = min(2 * pause, AGAIN_SECONDS_MAX)


@contextmanager
def _closed_at_the_end(engine: Engine) -> Iterator[Connection]:
    """A connection that does not go back to the pool, since closing it releases the lock."""
    with engine.connect() as connection:
        try:
            yield connection
        finally:
            connection.invalidate()


def _stay(connection: Connection, until: threading.Event) -> None:
    """Returns once the event is set; raises as soon as the connection is lost.

    Between two statements MariaDB waits for the next one, and so notices at once that the connection is closed; during
    a `SLEEP` it would not.
    """
    socket: Any = connection.connection.dbapi_connection
    poll = select.poll()  # `select` refuses descriptors from 1024 on
    poll.register(socket, select.POLLIN)
    while not until.is_set():
        poll.poll(1000 * SAID_EVERY_SECONDS)
        require_primary(connection)


def is_free(connection: Connection, worker: str, within_seconds: float) -> bool:
    """Whether nobody holds the lock of `worker`, now or within that time. It is not kept."""
    if connection.exec_driver_sql(_TAKE, (worker, within_seconds)).scalar_one() != 1:
        return False
    connection.exec_driver_sql(_RELEASE, (worker,))
    return True
