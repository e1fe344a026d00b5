"""A server that was demoted: it lives on and answers pings, but its rows grow old.

After a planned switchover it is read-only; cut off from its Galera cluster it refuses every statement. Where an address
leads to another server from now on, only new connections get there. So such a server counts as away: a new connection
to it is refused, one whose statement it refuses is closed with all others of its pool, and what only reads for long
asks first whether it is read-only.
"""

from __future__ import annotations

from sqlalchemy.engine import Connection, Engine, ExceptionContext
from sqlalchemy.event import listen

from oldhost_sync.store.errors import DatabaseUnavailable
from oldhost_sync.store.transactions import OPTION_FORBIDS, is_demoted

# The variable is a number in older servers, a word in newer ones.
IS_READ_ONLY = "(CAST(@@read_only AS CHAR) NOT IN ('0', 'OFF') OR CAST(@@innodb_read_only AS CHAR) NOT IN ('0', 'OFF'))"
# For a compound statement.
REFUSE_READ_ONLY = (
    f"IF {IS_READ_ONLY} THEN SIGNAL SQLSTATE 'HY000' "
    f"SET MYSQL_ERRNO = {OPTION_FORBIDS}, MESSAGE_TEXT = 'the server is read-only'; END IF;"
)
_REFUSE = f"BEGIN NOT ATOMIC {REFUSE_READ_ONLY} END"


def require_primary(connection: Connection) -> None:
    """Raise DBAPIError, and close the connections of its pool, if the server was demoted."""
    connection.exec_driver_sql(_REFUSE)


def refuse_demoted(is_read_only: bool) -> None:
    """For a new connection. Raises DatabaseUnavailable."""
    if is_read_only:
        raise DatabaseUnavailable("the server is read-only: a replica, or a primary that is being replaced")


def leave_demoted(engine: Engine) -> None:
    """Close the engine's connections as soon as the server refuses a statement because it is not the primary."""
    listen(engine, "handle_error", _leave)


def _leave(context: ExceptionContext) -> None:
    if is_demoted(context.original_exception):
        context.is_disconnect = True
