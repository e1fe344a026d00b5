"""The hosts that `migrate` has registered."""

from __future__ import annotations

from collections.abc import Sequence

from oldhost_sync.store.callers_connection import Statements
from oldhost_sync.store.errors import UnknownHost

# The most hosts that an error message names: more than one deployment usually serves.
HOSTS_NAMED_MAX = 20
_HOSTS = "SELECT DISTINCT host FROM event_rules ORDER BY host"


def known_hosts(connection: Statements) -> list[str]:
    """Every host that `migrate` has registered, sorted by name."""
    return list(connection.exec_driver_sql(_HOSTS).scalars())


def require_hosts(connection: Statements, hosts: Sequence[str], *, named_by: str) -> None:
    """Raises UnknownHost if one is not registered; `named_by`: the setting or argument that has its name."""
    known = known_hosts(connection)
    for host in hosts:
        if host not in known:
            named = ", ".join(known[:HOSTS_NAMED_MAX]) or "none"
            more = " and others" if len(known) > HOSTS_NAMED_MAX else ""
            raise UnknownHost(
                f"{named_by}: the database knows no host {host!r}, only {named}{more}. Correct the name; to add a new "
                "host, run `oldhost-sync migrate` with its name set"
            )
