"""An application that records changes in transactions of its own: SQLAlchemy's plain engines, with the session settings
that a server or an application may choose.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Engine


@dataclass(frozen=True)
class Session:
    """`snapshot`: MariaDB's default from 11.6 on."""

    isolation: str
    snapshot: bool = False

    def __str__(self) -> str:
        return f"{self.isolation}{' with snapshots' if self.snapshot else ''}"


SESSIONS = [
    Session("READ COMMITTED"),
    Session("REPEATABLE READ"),
    Session("REPEATABLE READ", snapshot=True),
    Session("SERIALIZABLE"),
    Session("SERIALIZABLE", snapshot=True),
]


@contextmanager
def application(url: URL, session: Session | None = None, **options: Any) -> Iterator[Engine]:
    """An engine as `sqlalchemy.create_engine` makes it; without `session` with the server's settings."""
    engine = create_engine(url, pool_size=10, **options)
    if session is not None:

        @event.listens_for(engine, "connect")
        def _set(connection: Any, _record: object) -> None:
            cursor = connection.cursor()
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {session.isolation}")
            cursor.execute(f"SET SESSION innodb_snapshot_isolation = {int(session.snapshot)}")
            cursor.close()
            connection.commit()

    try:
        yield engine
    finally:
        engine.dispose()
