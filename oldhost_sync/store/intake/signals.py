"""Changes that came by a signal, which has no answer: which of them are recorded, and a record of the invalid ones.

An invalid one would otherwise be lost. It becomes an outbox row with the outcome REFUSED, and one alert for all that
are refused for the same reason. The row takes its key as every other one does, is never relayed and not counted in the
books, and keeps only what helps to find the sender's mistake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from oldhost_sync.fields.scalar import InvalidField, read_id, read_name
from oldhost_sync.policy import limits
from oldhost_sync.policy.rules.alert_cause import cause_of
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.columns import storable
from oldhost_sync.store.errors import DUPLICATE_KEY, error_code
from oldhost_sync.store.intake.change_recorder import KEY_HAS_ROW, all_or_nothing
from oldhost_sync.store.tables import outbox_events, scheduled_changes

UNKNOWN = "unknown"
SUBMITTED_LENGTH_MAX = 2000
_TAKE_KEY = "INSERT INTO submitted_keys (host, idempotency_key, is_scheduled) VALUES (%s, %s, FALSE)"
_INSERT = (
    "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
    "priority_class, source, created_at, processed_at, outcome, error) VALUES (%s, %s, %s, %s, %s, %s, %s, 'TXN', %s, "
    "UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), 'REFUSED', %s) RETURNING id"
)


def record_refused(
    connection: Connection, *, host: str, idempotency_key: str, change: Any, reason: str, source: str
) -> int | None:
    """Record a refused submission under `idempotency_key`, a key that we generated; None if it is recorded already."""
    shown = _shown(change)
    fields = change if isinstance(change, Mapping) else {}
    key = (host, idempotency_key[: limits.IDEMPOTENCY_KEY_LENGTH_MAX])
    values = (
        *key,
        sha256(shown.encode()).digest(),
        _name(fields.get("entity_type")),
        _text(fields.get("entity_id")),
        _name(fields.get("event_type")),
        json.dumps({"submitted": shown}),
        source[: limits.SOURCE_LENGTH_MAX],
        storable(reason, limits.TEXT_LENGTH_MAX),
    )
    try:
        with all_or_nothing(connection):
            connection.exec_driver_sql(_TAKE_KEY, key)
            change_id = int(connection.exec_driver_sql(_INSERT, values).scalar_one())
            connection.exec_driver_sql(KEY_HAS_ROW, (change_id, *key))
    except IntegrityError as error:
        if error_code(error) != DUPLICATE_KEY:
            raise
        return None
    message, cause = f"A submitted change was refused: {reason}", f"submission-refused:{cause_of(reason)}"
    raise_alert(
        connection, host, "submission-refused", "warning", message, dedupe_key=cause, change_id=change_id, adds=True
    )
    return change_id


def _shown(change: Any) -> str:
    try:
        return json.dumps(change, default=str, skipkeys=True)[:SUBMITTED_LENGTH_MAX]
    except (RecursionError, ValueError):
        return f"a {type(change).__name__} that can't be shown"


def _name(value: object) -> str:
    try:
        return read_name("name", value)
    except InvalidField:
        return UNKNOWN


def _text(value: object) -> str:
    try:
        return read_id("text", value)
    except InvalidField:
        return UNKNOWN


# --------------------------------------------------------------------------------------------- what is recorded already

# Keys looked up in one statement.
KEYS_AT_ONCE = 500
_FIRST_OPERATION = "SELECT created_at FROM nonce_requests WHERE host = %s ORDER BY nonce LIMIT 1"


def wrote_before(connection: Connection, host: str, moment: datetime) -> bool:
    """Whether an operation of this host was reserved before `moment` (aware)."""
    first = connection.exec_driver_sql(_FIRST_OPERATION, (host,)).scalar()
    return first is not None and first.replace(tzinfo=UTC) < moment


def known_hashes(connection: Connection, host: str, keys: Sequence[str]) -> dict[str, bytes]:
    """Those of `keys` under which something was recorded, refused or scheduled; of each the hash of its request."""
    known: dict[str, bytes] = {}
    for start in range(0, len(keys), KEYS_AT_ONCE):
        for table in (outbox_events, scheduled_changes):
            query = select(table.c.idempotency_key, table.c.request_hash).where(
                table.c.host == host, table.c.idempotency_key.in_(keys[start : start + KEYS_AT_ONCE])
            )
            known.update({row.idempotency_key: bytes(row.request_hash) for row in connection.execute(query)})
    return known
