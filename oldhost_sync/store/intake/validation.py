"""The checks of a change before it is accepted: names, sizes, types (limits and reasons: policy/limits.py).

A change that passes can be stored, hashed, sent to OldHost and shown; any other is refused before the database is
asked, with a message that names the field. Each field has one parser (`oldhost_sync/fields`), whichever door it came
through.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from oldhost_sync.fields import json_text
from oldhost_sync.fields.change import read_change
from oldhost_sync.fields.scalar import (
    InvalidField,
    read_due_moment,
    read_id,
    read_key,
    read_label,
    read_moment,
    read_name,
)
from oldhost_sync.fields.traceparent import read_traceparent
from oldhost_sync.policy import limits
from oldhost_sync.store.errors import InvalidChange

UNIT_COLUMNS: dict[str, dict[str, int]] = {
    "unit_status_changed": {"status": limits.UNIT_STATUS_LENGTH_MAX},
    "unit_details_changed": {"name": limits.UNIT_NAME_LENGTH_MAX, "property_id": limits.ID_LENGTH_MAX},
}
ID_COLUMNS = ("property_id",)


@dataclass(frozen=True, slots=True)
class Acceptable:
    """A change within all limits. `columns`: the unit's own columns that it sets. `payload`: canonical JSON.

    `key_is_new`: its key was generated just now, so it can't have been used before.
    """

    host: str
    entity_type: str
    entity_id: str
    event_type: str
    payload: str
    idempotency_key: str
    request_hash: bytes
    occurred_at: datetime | None
    not_before: datetime | None
    source: str
    columns: tuple[tuple[str, str | None], ...] = ()
    key_is_new: bool = False
    traceparent: str | None = None


@contextmanager
def refusing() -> Iterator[None]:
    """Turns the parsers' error into the store's, with the same words."""
    try:
        yield
    except InvalidField as error:
        raise InvalidChange(str(error), error.field) from None


def change_fields(change: object, traceparent: str | None = None) -> dict[str, Any]:
    """The fields of a change that arrived as one object, for `accept`; InvalidChange if it lacks or adds one.

    `traceparent`: of one that has none of its own.
    """
    with refusing():
        given = read_change(change)
    if given["traceparent"] is None:
        given["traceparent"] = traceparent
    return given


def accept(
    host: str,
    entity_type: object,
    entity_id: object,
    event_type: object,
    payload: object,
    idempotency_key: object,
    occurred_at: object,
    not_before: object,
    source: str,
    key_length_max: int = limits.KEY_LENGTH_MAX,
    traceparent: object = None,
) -> Acceptable:
    """Check the change; InvalidChange says which field is wrong and what it must be. A missing key is generated.

    `key_length_max`: larger for a key that is derived from the one that was given.
    """
    with refusing():
        named = (
            read_name("host", host),
            read_name("entity_type", entity_type),
            read_id("entity_id", entity_id),
            read_name("event_type", event_type),
        )
        key = str(uuid.uuid4())
        if idempotency_key is not None:
            key = read_key("idempotency_key", idempotency_key, key_length_max)
        content, text = _read_payload(payload)
        columns = unit_columns(named[3], content) if entity_type == "unit" else ()
        occurred = None if occurred_at is None else read_moment("occurred_at", occurred_at)
        due = None if not_before is None else read_due_moment("not_before", not_before, datetime.now(UTC))
        return Acceptable(
            *named,
            payload=text,
            idempotency_key=key,
            request_hash=_request_hash(named, text, occurred, due),
            occurred_at=occurred,
            not_before=due,
            source=read_id("source", source, limits.SOURCE_LENGTH_MAX),
            columns=columns,
            key_is_new=idempotency_key is None,
            traceparent=read_traceparent(traceparent),
        )


def check_name(field: str, value: object) -> None:
    with refusing():
        read_name(field, value)


def canonical_json(field: str, value: object) -> str:
    """The same text for equal JSON values; its length is its size in bytes."""
    with refusing():
        return json_text.canonical_json(field, value)


def _read_payload(payload: object) -> tuple[Mapping[str, Any], str]:
    """The payload, and its canonical text."""
    if not isinstance(payload, Mapping):
        raise InvalidField("payload", "payload must be a JSON object")
    text = json_text.canonical_json("payload", payload)
    if len(text) > limits.PAYLOAD_BYTES_MAX:
        message = f"payload is {len(text)} bytes of JSON; at most {limits.PAYLOAD_BYTES_MAX} are accepted"
        raise InvalidField("payload", message)
    return payload, text


def _request_hash(named: tuple[str, ...], payload: str, *times: datetime | None) -> bytes:
    shown = [None if moment is None else moment.isoformat() for moment in times]
    head = json.dumps([*named, *shown], separators=(",", ":"))
    return sha256(f"{head}\n{payload}".encode()).digest()


def unit_columns(event_type: str, payload: Mapping[str, Any]) -> tuple[tuple[str, str | None], ...]:
    """The unit's own columns that the payload sets; a field that is not text stays in the state only."""
    columns: list[tuple[str, str | None]] = []
    for name, length_max in UNIT_COLUMNS.get(event_type, {}).items():
        value = payload.get(name, ...)
        field = f"payload.{name}"
        if isinstance(value, str):
            columns.append(
                (name, read_id(field, value) if name in ID_COLUMNS else read_label(field, value, length_max))
            )
        elif value is None:
            columns.append((name, None))
    return tuple(columns)
