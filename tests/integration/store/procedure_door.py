"""`CALL record_change(…)` with what `record_change` takes and gives, so that both pass the same tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync import IdempotencyConflict, InvalidChange, RecordedChange, TransactionNeeded, UnknownHost
from oldhost_sync.store.errors import StoreError, error_code
from oldhost_sync.store.intake import procedure
from oldhost_sync.store.outbox.outstanding_changes import as_ref

_ERRORS: dict[int, type[StoreError]] = {
    procedure.NUMBERS[procedure.INVALID]: InvalidChange,
    procedure.NUMBERS[procedure.CONFLICT]: IdempotencyConflict,
    procedure.NUMBERS[procedure.UNKNOWN_HOST]: UnknownHost,
    procedure.NUMBERS[procedure.NOT_IN_TRANSACTION]: TransactionNeeded,
}


def call(connection: Connection, host: str, change: str, source: str | None = None) -> Any:
    """The answer's row; `change`: the text of a JSON object."""
    try:
        return connection.exec_driver_sql("CALL record_change(%s, %s, %s)", (host, change, source)).one()
    except DBAPIError as error:
        ours = _ERRORS.get(error_code(error) or 0)
        if ours is None or error.orig is None:
            raise
        raise ours(error.orig.args[1]) from error


def record_by_procedure(
    connection: Connection, *, host: str, source: str | None = None, **change: Any
) -> RecordedChange:
    row = call(connection, host, json.dumps(change, default=_as_json), source)
    accepted_at = row.accepted_at.replace(tzinfo=UTC)
    ref = None
    if row.change_id is not None and row.scheduled_id is None:
        entity = (change["entity_type"], change["entity_id"], change["event_type"])
        ref = as_ref((row.change_id, row.priority_class, *entity, row.accepted_at))
    return RecordedChange(
        row.change_id, row.scheduled_id, row.idempotency_key, ref, accepted_at, row.sync_status, bool(row.duplicate),
        row.outcome, row.nonce,
    )  # fmt: skip


def _as_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    assert isinstance(value, Mapping)
    return dict(value)
