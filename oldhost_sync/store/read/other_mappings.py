"""How many of OldHost's states another mapping made than the host's of now. Nothing is wrong with them: operators are
offered a resync, which sends them in the new form.

It counts what a resync sends: keys whose changes are LWW, where the rule of now is another one. Once a resync of all
entities that was asked for since has ended, none is counted: what is left is only overwritten by what comes.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.engine import Connection

from oldhost_sync.drivers.mapping import OLDHOST, NotMapped, Rule, from_text
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.intake.rules import classes_of

_IN_USE = (
    "SELECT m.label, m.definition, EXISTS (SELECT 1 FROM resyncs r WHERE r.host = m.host AND r.property_id IS NULL "
    "AND r.unit_id IS NULL AND r.created_at >= m.installed_at AND r.finished_at IS NOT NULL) AS is_resynced "
    "FROM host_mappings m WHERE m.host = %s AND m.in_use = 1"
)
_OTHERS = (
    "SELECT a.entity_type, a.event_type, a.mapping, COUNT(*) AS states FROM applied_states a "
    "FORCE INDEX (ix_applied_states_mapping) WHERE a.host = %s AND a.mapping <> '' AND a.mapping <> %s "
    "GROUP BY a.entity_type, a.event_type, a.mapping"
)
_DEFINITIONS = "SELECT label, definition FROM host_mappings WHERE host = %s"


@dataclass(frozen=True, slots=True)
class OtherMappings:
    """`mapping`: name and version of the one of now. `states`: how many others have made."""

    mapping: str
    states: int = 0


def read_other_mappings(connection: Connection, host: str) -> OtherMappings:
    now = connection.exec_driver_sql(_IN_USE, (host,)).one_or_none()
    if now is None:
        return OtherMappings(OLDHOST.label)
    groups = [] if now.is_resynced else connection.exec_driver_sql(_OTHERS, (host, now.label)).all()
    if not groups:
        return OtherMappings(now.label)
    classes = classes_of(connection, host, sorted({each.event_type for each in groups}))
    rows = connection.exec_driver_sql(_DEFINITIONS, (host,)).all()
    definitions = {row.label: row.definition for row in rows}

    def rule(label: str, event_type: str, entity_type: str) -> Rule | str:
        try:
            return from_text(definitions[label]).rule(event_type, entity_type)
        except NotMapped:
            return "none"

    states = sum(
        each.states
        for each in groups
        if classes[each.event_type] == PriorityClass.LWW
        and each.mapping in definitions
        and rule(each.mapping, each.event_type, each.entity_type) != rule(now.label, each.event_type, each.entity_type)
    )
    return OtherMappings(now.label, int(states))
