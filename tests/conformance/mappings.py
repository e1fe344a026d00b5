"""Mappings for tests: one whose bodies are exactly `{"unit_id", "status"}`, as installed by `migrate`."""

from __future__ import annotations

from sqlalchemy.engine import Engine

from oldhost_sync.drivers.mapping import HostMapping, Output
from oldhost_sync.store.mappings import install_mappings
from oldhost_sync.store.transactions import run_in_transaction

UNIT_ID = Output(("unit_id",), "/entity_id")
STATUS = Output(("status",), "/payload/status")
SHORT = HostMapping("short", "1", {"*": (UNIT_ID, STATUS)})
LONGER = HostMapping("longer", "1", {"*": (UNIT_ID, STATUS, Output(("system",), "", "desk"))})


def install(engine: Engine, mapping: HostMapping, host: str = "oldhost") -> None:
    run_in_transaction(engine, lambda connection: install_mappings(connection, {host: mapping}))
