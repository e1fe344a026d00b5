"""The advisory lock that elects one alert sender per host; a connection holds it, with no transaction open.

For efficiency only: a sender that loses the connection loses the lock, another process takes over, and an alert may be
sent twice. The server disconnects a frozen holder after a time; otherwise no alert would be sent while it stays frozen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.interfaces import DBAPIConnection

# Lock names are server-wide, and several databases may have a host of this name; a name has at most 64 characters.
_NAME = "CONCAT('oldhost-sync-alerts:', MD5(CONCAT(DATABASE(), '/', %s)))"
_CLAIM = f"SELECT GET_LOCK({_NAME}, 0)"
_RELEASE = f"SELECT RELEASE_LOCK({_NAME})"
# Longer than a working holder can be silent, which is as long as a webhook may take (oldhost_sync/delivery.py).
SILENT_SECONDS_MAX = 40


@contextmanager
def held_lock(engine: Engine, host: str) -> Iterator[Connection | None]:
    """The connection that holds the lock, for the holder's short transactions; None if another process holds it."""
    with engine.connect() as connection:
        raw = connection.connection.dbapi_connection
        connection.detach()  # removed from the pool and closed at the end, which also releases the lock
        try:
            connection.exec_driver_sql(f"SET SESSION wait_timeout = {SILENT_SECONDS_MAX}")
            held = connection.exec_driver_sql(_CLAIM, (host,)).scalar_one() == 1
            connection.commit()
            yield connection if held else None
            if held:
                connection.exec_driver_sql(_RELEASE, (host,))
                connection.commit()
        finally:
            if connection.invalidated and raw is not None:
                _close(raw)


def _close(raw: DBAPIConnection) -> None:
    """SQLAlchemy drops a detached connection that failed, without closing it."""
    with suppress(Exception):
        raw.close()
