"""The mapping of each host, in the database: so every door and the ledger use the same one, also an application that
records changes in its own process and has no settings of ours.

`migrate` installs it. A door checks a change by the mapping that is installed in that moment, and the ledger binds
bytes by the one that is installed then. If it was changed in between and makes nothing of the change, the change
becomes a dead letter that says so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from sqlalchemy.engine import Connection

from oldhost_sync.drivers.mapping import OLDHOST, ChangeContent, CodeMissing, HostMapping, NotMapped, from_text, to_text
from oldhost_sync.store.callers_connection import Statements
from oldhost_sync.store.errors import InvalidChange, MappingVersionTaken

logger = logging.getLogger(__name__)

_IN_USE = "FROM host_mappings m WHERE m.host = %s AND m.in_use = 1"
# Of a host (%s), as a value of another statement.
DEFINITION = f"(SELECT m.definition {_IN_USE})"
LABEL = f"(SELECT m.label {_IN_USE})"

_DEFINITION = f"SELECT m.definition {_IN_USE}"
_ADD = "INSERT IGNORE INTO host_mappings (host, label, definition) VALUES (%s, %s, %s)"
_GIVEN = "SELECT definition FROM host_mappings WHERE host = %s AND label = %s"
_REPLACE = "UPDATE host_mappings SET in_use = NULL WHERE host = %s AND in_use = 1"
_USE = "UPDATE host_mappings SET in_use = 1, installed_at = UTC_TIMESTAMP(6) WHERE host = %s AND label = %s"
# The keys refuse it if there is one in use.
_SEED = "INSERT IGNORE INTO host_mappings (host, label, definition, in_use) VALUES (%s, %s, %s, 1)"


def mapping_of(connection: Connection, host: str) -> HostMapping:
    return _read(definition_of(connection, host))


def definition_of(connection: Statements, host: str, *, locking: bool = False) -> str | None:
    """For `check_mapped`. `locking`: not as the transaction's view has it."""
    statement = f"{_DEFINITION} LOCK IN SHARE MODE" if locking else _DEFINITION
    found: str | None = connection.exec_driver_sql(statement, (host,)).scalar()
    return found


def check_mapped(definition: str | None, change: Any) -> None:
    """Raises InvalidChange if the mapping makes no operation of `change`, any object with an accepted one's fields.
    Where its code is not installed, as perhaps in an application, that shows when it is to be sent.
    """
    mapping = _read(definition)
    try:
        if mapping.rule(change.event_type, change.entity_type) is not None:
            names = ("entity_type", "entity_id", "event_type", "idempotency_key")
            named = {name: getattr(change, name) for name in names}
            mapping.check(ChangeContent(**named, payload=json.loads(change.payload)))
    except CodeMissing:
        return
    except NotMapped as error:
        raise InvalidChange(str(error), error.field) from None


def seed_mapping(connection: Connection, host: str) -> None:
    """The preset, for a host that has no mapping yet."""
    connection.exec_driver_sql(_SEED, (host, OLDHOST.label, to_text(OLDHOST)))


def install_mappings(connection: Connection, mappings: Mapping[str, HostMapping]) -> None:
    """By host, what makes all bodies that are bound from now on: all, or none with MappingVersionTaken, if a name and
    version has had other rules. Bytes are known by name and version.
    """
    for host, mapping in mappings.items():
        seed_mapping(connection, host)
        before, text = mapping_of(connection, host), to_text(mapping)
        connection.exec_driver_sql(_ADD, (host, mapping.label, text))
        if connection.exec_driver_sql(_GIVEN, (host, mapping.label)).scalar_one() != text:
            raise MappingVersionTaken(f"{host} has had another mapping {mapping.label}: give this one another version")
        if before.label != mapping.label:
            connection.exec_driver_sql(_REPLACE, (host,))
            connection.exec_driver_sql(_USE, (host, mapping.label))
            logger.info("the mapping of %s is %s now, and was %s", host, mapping.label, before.label)


def _read(definition: str | None) -> HostMapping:
    return OLDHOST if definition is None else from_text(definition)
