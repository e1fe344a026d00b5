"""The checks of a change before it is accepted: names, sizes, types (limits and reasons: policy/limits.py).

A change that passes can be stored, hashed, sent to OldHost and shown; any other is refused before the database is
asked, with a message that names the field.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from oldhost_sync.policy import limits
from oldhost_sync.store.errors import InvalidChange

_NAME = re.compile(limits.NAME_PATTERN)
_UNIT_COLUMNS: dict[str, dict[str, int]] = {
    "unit_status_changed": {"status": limits.UNIT_STATUS_LENGTH_MAX},
    "unit_details_changed": {"name": limits.UNIT_NAME_LENGTH_MAX, "property_id": limits.ID_LENGTH_MAX},
}


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


def accept(
    host: str,
    entity_type: str,
    entity_id: str,
    event_type: str,
    payload: Mapping[str, Any],
    idempotency_key: str | None,
    occurred_at: datetime | str | None,
    not_before: datetime | str | None,
    source: str,
) -> Acceptable:
    """Check the change; InvalidChange says which field is wrong and what it must be. A missing key is generated."""
    for field, value in (("host", host), ("entity_type", entity_type), ("event_type", event_type)):
        check_name(field, value)
    check_text("entity_id", entity_id, limits.ID_LENGTH_MAX)
    check_text("source", source, limits.SOURCE_LENGTH_MAX)
    key = str(uuid.uuid4()) if idempotency_key is None else idempotency_key
    check_text("idempotency_key", key, limits.IDEMPOTENCY_KEY_LENGTH_MAX)
    if not key.isascii():
        raise InvalidChange("idempotency_key must be ASCII, as it is sent in HTTP headers")
    if not isinstance(payload, Mapping):
        raise InvalidChange("payload must be a JSON object")
    text = canonical_json("payload", payload)
    if len(text) > limits.PAYLOAD_BYTES_MAX:
        raise InvalidChange(f"payload is {len(text)} bytes of JSON; at most {limits.PAYLOAD_BYTES_MAX} are accepted")
    occurred, due = check_occurred_at(occurred_at), check_not_before(not_before)
    return Acceptable(
        host=host,
        entity_type=entity_type,
        entity_id=entity_id,
        event_type=event_type,
        payload=text,
        idempotency_key=key,
        request_hash=_request_hash((host, entity_type, entity_id, event_type), text, occurred, due),
        occurred_at=occurred,
        not_before=due,
        source=source,
        columns=unit_columns(event_type, payload) if entity_type == "unit" else (),
        key_is_new=idempotency_key is None,
    )


def check_name(field: str, value: object) -> None:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidChange(f"{field} must be 1 to 64 of the characters A-Z a-z 0-9 _ . -")


def check_text(field: str, value: object, length_max: int) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= length_max or not value.isprintable():
        raise InvalidChange(f"{field} must be 1 to {length_max} printable characters")


def canonical_json(field: str, value: object) -> str:
    """The same text for equal JSON values: sorted keys, no blanks, ASCII only; its length is its size in bytes."""
    _check_json(field, value, limits.PAYLOAD_DEPTH_MAX)
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)
    except (ValueError, TypeError) as error:
        raise InvalidChange(f"{field} is not valid JSON: {error}") from error


def check_occurred_at(value: datetime | str | None) -> datetime | None:
    """`value` in UTC. A client's time decides nothing (trap 19), so it only has to be storable."""
    if value is None:
        return None
    moment = _aware("occurred_at", value)
    if not limits.OCCURRED_AT_YEAR_MIN <= moment.year <= limits.OCCURRED_AT_YEAR_MAX:
        raise InvalidChange(
            f"occurred_at must be in a year from {limits.OCCURRED_AT_YEAR_MIN} to {limits.OCCURRED_AT_YEAR_MAX}"
        )
    return moment


def check_not_before(value: datetime | str | None) -> datetime | None:
    """`value` in UTC. The database decides whether it is in the future; a wrong unit of time is refused here."""
    if value is None:
        return None
    moment = _aware("not_before", value)
    if moment > datetime.now(UTC) + timedelta(days=limits.NOT_BEFORE_DAYS_MAX):
        raise InvalidChange(f"not_before is more than {limits.NOT_BEFORE_DAYS_MAX} days ahead")
    return moment


def _aware(field: str, value: object) -> datetime:
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidChange(f"{field} must be a time with a time zone, such as 2026-05-01T12:00:00Z")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise InvalidChange(f"{field} is out of range") from error


def _check_json(field: str, value: object, depth_left: int) -> None:
    """Field names must be text, text must be Unicode (no lone surrogates), and nesting within the database's limit."""
    if isinstance(value, str):
        if not _is_unicode(value):
            raise InvalidChange(f"{field} has text that is not valid Unicode (a lone surrogate)")
    elif isinstance(value, Mapping | list | tuple):
        if not depth_left:
            raise InvalidChange(f"{field} nests deeper than {limits.PAYLOAD_DEPTH_MAX} levels")
        if isinstance(value, Mapping):
            for name, item in value.items():
                if not isinstance(name, str) or not _is_unicode(name):
                    raise InvalidChange(f"{field} has a field whose name is not text")
                _check_json(field, item, depth_left - 1)
        else:
            for item in value:
                _check_json(field, item, depth_left - 1)


def _is_unicode(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def _request_hash(named: tuple[str, ...], payload: str, *times: datetime | None) -> bytes:
    shown = [None if moment is None else moment.isoformat() for moment in times]
    head = json.dumps([*named, *shown], separators=(",", ":"))
    return sha256(f"{head}\n{payload}".encode()).digest()


def unit_columns(event_type: str, payload: Mapping[str, Any]) -> tuple[tuple[str, str | None], ...]:
    """The unit's own columns that the payload sets; a field that is not text stays in the state only."""
    columns = []
    for field, length_max in _UNIT_COLUMNS.get(event_type, {}).items():
        value = payload.get(field, ...)
        if isinstance(value, str) and len(value) > length_max:
            raise InvalidChange(f"payload.{field} must be at most {length_max} characters")
        if value is None or isinstance(value, str):
            columns.append((field, value))
    return tuple(columns)
