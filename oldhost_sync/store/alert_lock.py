"""Who tells of a host's alerts now: a lock of the server's that its connection holds, with no transaction open.

For efficiency only: who loses the connection loses the lock, another worker begins, and an alert may be told twice. A
holder that is frozen is hung up on after a time, or nobody would be told for as long as it stays so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import Connection, Engine

# Locks are the server's, whose databases may each have a host of this name; a lock's name has 64 characters at most.
_NAME = "CONCAT('oldhost-sync-alerts:', MD5(CONCAT(DATABASE(), '/', %s)))"
_CLAIM = f"SELECT GET_LOCK({_NAME}, 0)"
_RELEASE = f"SELECT RELEASE_LOCK({_NAME})"
# Longer than a holder has nothing to say for, which is as long as a webhook may be slow to say no
# (oldhost_sync/delivery.py).
SILENT_SECONDS_MAX = 40


@contextmanager
def claimed(engine: Engine, host: str) -> Iterator[Connection | None]:
    """The connection that holds the claim, for short transactions of its holder's; None while another one has it."""
    with engine.connect() as connection:
        connection.detach()  # it leaves the pool and is closed at the end, and the lock with it, however that comes
        connection.exec_driver_sql(f"SET SESSION wait_timeout = {SILENT_SECONDS_MAX}")
        held = connection.exec_driver_sql(_CLAIM, (host,)).scalar_one() == 1
        connection.commit()
        yield connection if held else None
        if held:
            connection.exec_driver_sql(_RELEASE, (host,))
            connection.commit()
