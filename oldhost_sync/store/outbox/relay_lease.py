"""Which relay is the active one: a lease by the database's clock, for efficiency only.

A lease that ends later than a new one would end was taken before the clock was set back: it counts as expired, or a
dead relay's lease could last for hours. A lease that is offered is made to end so late: any relay may take it, and its
owner still counts as at work.

A relay that was frozen may resume and still act as the active one. That is harmless: two relays signal the same changes
twice, and the writer ignores the repetition by the change's id.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from oldhost_sync.store.transactions import DUPLICATE_KEY, error_code

_UNTIL = "UTC_TIMESTAMP(6) + INTERVAL :span_us MICROSECOND"
_RENEW = text(
    f"UPDATE relay_lease SET owner = :owner, expires_at = {_UNTIL} "
    f"WHERE host = :host AND (owner = :owner OR expires_at <= UTC_TIMESTAMP(6) OR expires_at > {_UNTIL})"
)
_FIRST = text(f"INSERT INTO relay_lease (host, owner, expires_at) VALUES (:host, :owner, {_UNTIL})")
# An expired lease that no other relay has taken is renewed too, one that is offered is not. The table has few rows: one
# for each host.
_RENEW_ALL = text(f"UPDATE relay_lease SET expires_at = {_UNTIL} WHERE owner = :owner AND expires_at <= {_UNTIL}")
_HELD = text(f"SELECT host FROM relay_lease WHERE owner = :owner AND expires_at <= {_UNTIL}")
_UNSERVED = text(
    "SELECT r.host FROM (SELECT DISTINCT host FROM event_rules) r WHERE NOT EXISTS ("
    "SELECT 1 FROM relay_lease l WHERE l.host = r.host AND l.expires_at > UTC_TIMESTAMP(6)) AND EXISTS ("
    "SELECT 1 FROM outbox_events o FORCE INDEX (ix_outbox_events_unrelayed) WHERE o.host = r.host "
    "AND o.processed_at IS NULL) ORDER BY r.host"
)
_OFFER = text(
    f"UPDATE relay_lease SET expires_at = {_UNTIL} + INTERVAL :span_us MICROSECOND "
    "WHERE host = :host AND owner = :owner"
)
_RELEASE = text("DELETE FROM relay_lease WHERE host = :host AND owner = :owner")


def take_lease(connection: Connection, host: str, owner: str, span: timedelta) -> bool:
    """Take or renew the lease for `span` from now; False while another owner holds it."""
    values = {"host": host, "owner": owner, "span_us": _microseconds(span)}
    if connection.execute(_RENEW, values).rowcount:
        return True
    try:
        connection.execute(_FIRST, values)
    except IntegrityError as error:
        if error_code(error) != DUPLICATE_KEY:
            raise
        return False
    return True


def renew_leases(connection: Connection, owner: str, span: timedelta) -> list[str]:
    """Renew all leases of this owner that are not offered for `span` from now; returns the hosts of these leases."""
    values = {"owner": owner, "span_us": _microseconds(span)}
    connection.execute(_RENEW_ALL, values)
    return list(connection.execute(_HELD, values).scalars())


def offer_lease(connection: Connection, host: str, owner: str, span: timedelta) -> bool:
    """Let any other relay take the lease within `span`; False if it is another's."""
    values = {"host": host, "owner": owner, "span_us": _microseconds(span)}
    return bool(connection.execute(_OFFER, values).rowcount)


def release_lease(connection: Connection, host: str, owner: str) -> None:
    """Release the lease, so that the next relay need not wait until it expires."""
    connection.execute(_RELEASE, {"host": host, "owner": owner})


def unserved_hosts(connection: Connection) -> list[str]:
    """The registered hosts with changes that have no fate, and for which no relay holds a lease."""
    return list(connection.execute(_UNSERVED).scalars())


def _microseconds(span: timedelta) -> int:
    return span // timedelta(microseconds=1)
