"""What every role and command needs from the database before it begins: a schema that is not too old, and known hosts.

A release works with its own schema and with the next one, because what a migration removes is no longer used by the
release before (the rule is in CONTRIBUTING.md). So an older schema is refused, a newer one is not. `oldhost-sync
migrate` registers a host by writing its rules: otherwise a mistyped name would show empty books, and begin a ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.store.errors import SchemaTooOld, UnknownHost
from oldhost_sync.store.transactions import run_in_transaction

# The most hosts that an error message names: more than one deployment usually serves.
HOSTS_NAMED_MAX = 20

_REVISION = text("SELECT MAX(version_num) FROM alembic_version")
_HOSTS = text("SELECT DISTINCT host FROM event_rules ORDER BY host")


@cache
def needed_revision() -> str:
    """The schema's revision that this release was written for: the number of its newest migration."""
    versions = resources.files("migrations").joinpath("versions")
    return max(file.name[:4] for file in versions.iterdir() if file.name[:4].isdigit())


def known_hosts(connection: Connection) -> list[str]:
    """Every host that `migrate` has registered, sorted by name."""
    return list(connection.execute(_HOSTS).scalars())


def require(connection: Connection, hosts: Sequence[str]) -> None:
    """`hosts`: SYNC_HOST first. Raises SchemaTooOld or UnknownHost. Without our tables, the database's own error is
    raised.
    """
    found = connection.execute(_REVISION).scalar() or "none"
    if found < needed_revision() or found == "none":
        raise SchemaTooOld(
            f"the database's schema is at revision {found}, and this release needs {needed_revision()}: "
            "run `oldhost-sync migrate` of this release first"
        )
    require_hosts(connection, hosts[:1], named_by="SYNC_HOST")
    require_hosts(connection, hosts[1:], named_by="SYNC_OLDHOST_URLS")


def require_hosts(connection: Connection, hosts: Sequence[str], *, named_by: str) -> None:
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


def check_database(engine: Engine, hosts: Sequence[str]) -> None:
    """:func:`require` in a transaction of its own. Also raises DatabaseUnavailable."""
    run_in_transaction(engine, lambda connection: require(connection, hosts))
