"""Which class a change has: a rule on the server decides, never the client.

A row in `event_rules` decides; without one the defaults below do, and an unknown event type is TXN, because sending
every change in order is never wrong. The class is looked up inside the statement that writes the change, so a changed
rule applies from the next change on; there is no cache.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import MappingProxyType

from sqlalchemy import select
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.callers_connection import Statements
from oldhost_sync.store.errors import UnknownHost
from oldhost_sync.store.mappings import seed_mapping
from oldhost_sync.store.tables import event_rules
from oldhost_sync.store.transactions import lock_wait

DEFAULT_RULES = MappingProxyType(
    {
        "unit_status_changed": PriorityClass.LWW,
        "unit_details_changed": PriorityClass.LWW,
        "rate_changed": PriorityClass.LWW,
        "guest_locked_out": PriorityClass.EMERGENCY,
        "lock_emergency": PriorityClass.EMERGENCY,
        "booking_created": PriorityClass.TXN,
        "booking_cancelled": PriorityClass.TXN,
        "checked_in": PriorityClass.TXN,
        "checked_out": PriorityClass.TXN,
        "door_code_changed": PriorityClass.TXN,
    }
)


def default_class(event_type: str) -> PriorityClass:
    """The class of `event_type` if it has no row."""
    return DEFAULT_RULES.get(event_type, PriorityClass.TXN)


def class_of(connection: Connection, host: str, event_type: str) -> PriorityClass:
    """The class a change of `event_type` would get now."""
    stored = connection.execute(
        select(event_rules.c.priority_class).where(event_rules.c.host == host, event_rules.c.event_type == event_type)
    ).scalar()
    return default_class(event_type) if stored is None else PriorityClass(stored)


def classes_of(
    connection: Statements, host: str, event_types: Collection[str], *, locking: bool = False
) -> dict[str, str]:
    """The class that a change of each of `event_types` (at least one) would get now, as it is stored. `locking`: not
    as the transaction's view has it.
    """
    places = ", ".join(["%s"] * len(event_types))
    query = f"SELECT event_type, priority_class FROM event_rules WHERE host = %s AND event_type IN ({places})"
    if locking:
        query += " LOCK IN SHARE MODE"
    rows = connection.exec_driver_sql(query, (host, *event_types)).all()
    stored: dict[str, str] = {row.event_type: row.priority_class for row in rows}
    return {event_type: stored.get(event_type) or default_class(event_type).value for event_type in event_types}


def rules_of(connection: Connection, host: str) -> dict[str, PriorityClass]:
    """All rules in force for `host` by event type, the defaults included."""
    rows = connection.execute(
        select(event_rules.c.event_type, event_rules.c.priority_class).where(event_rules.c.host == host)
    )
    stored = {row.event_type: PriorityClass(row.priority_class) for row in rows}
    return dict(sorted({**DEFAULT_RULES, **stored}.items()))


def set_rule(connection: Connection, host: str, event_type: str, priority_class: PriorityClass) -> None:
    """Set the class of `event_type` for the changes recorded from now on."""
    statement = insert(event_rules).values(host=host, event_type=event_type, priority_class=priority_class.value)
    connection.execute(statement.on_duplicate_key_update(priority_class=statement.inserted.priority_class))


def decide_rule(
    connection: Connection, host: str, event_type: str, priority_class: PriorityClass, *, operator: Actor, reason: str
) -> PriorityClass:
    """As :func:`set_rule`, as an operator's act with an entry in the audit; returns the class it had before.

    Raises the database's "lock wait" error at once while an open transaction has recorded a change of this type: all
    that record another one would queue up behind an operator who waits.
    """
    before = class_of(connection, host, event_type)
    with lock_wait(connection, 0):
        set_rule(connection, host, event_type, priority_class)
    detail = {"event_type": event_type, "from": before.value, "to": priority_class.value}
    record_act(connection, host=host, action="set-rule", operator=operator, reason=reason, detail=detail)
    return before


def seed_rules(connection: Connection, host: str) -> None:
    """Write the defaults as rows, where an operator can see and change them, and the preset as the host's mapping; rows
    that exist stay as they are.
    """
    rows = [
        {"host": host, "event_type": event_type, "priority_class": priority_class.value}
        for event_type, priority_class in DEFAULT_RULES.items()
    ]
    connection.execute(insert(event_rules).prefix_with("IGNORE"), rows)
    seed_mapping(connection, host)


# ------------------------------------------------------------------ the hosts that `migrate` has registered, with rules

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
