"""The shadows of a batch: each entity's last payload of each event type, with multi-row statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy import limits
from oldhost_sync.store.intake.change_batch import Entity
from oldhost_sync.store.intake.change_recorder import (
    ENTITY_SHADOW,
    UNIT,
    UNIT_SHADOW,
    RecordedChange,
    Shadow,
)
from oldhost_sync.store.intake.state_size import is_state_too_large
from oldhost_sync.store.intake.validation import Acceptable

# Entity, payload, newest change, and the values of the unit's own columns.
_ShadowRow = tuple[Entity, str, int | None, tuple[str | None, ...]]


class StatesTooLarge(Exception):  # noqa: N818 - an event, not a mistake
    """The states of these entities would be larger than a state may be."""

    def __init__(self, entities: set[Entity]) -> None:
        super().__init__("states are too large")
        self.entities = entities


def write_shadows(
    connection: Connection, host: str, changes: Sequence[Acceptable], recorded: Mapping[str, RecordedChange]
) -> None:
    """Write each entity's last payload of each event type and its newest change, one statement per event type. The rows
    must be locked. Raises StatesTooLarge.
    """
    newest: dict[Entity, int | None] = {}
    last: dict[tuple[str, Entity], tuple[str, dict[str, str | None]]] = {}
    for change in changes:
        entity = (change.entity_type, change.entity_id)
        newest[entity] = recorded[change.idempotency_key].change_id
        _, columns = last.get((change.event_type, entity), ("", {}))
        last[change.event_type, entity] = (change.payload, {**columns, **dict(change.columns)})
    alike: dict[tuple[Shadow, str, tuple[str, ...]], list[_ShadowRow]] = {}
    for (event_type, entity), (payload, columns) in last.items():
        row = (entity, payload, newest[entity], tuple(columns.values()))
        alike.setdefault((_shadow(entity), event_type, tuple(columns)), []).append(row)
    try:
        for (shadow, event_type, names), rows in alike.items():
            _write_alike(connection, host, shadow, event_type, names, rows)
    except DBAPIError as error:
        if is_state_too_large(error):
            payloads: dict[Entity, list[tuple[str, str]]] = {}
            for (_, event_type, _), rows in alike.items():
                for entity, payload, _, _ in rows:
                    payloads.setdefault(entity, []).append((f'$."{event_type}"', payload))
            if found := {entity for entity, some in payloads.items() if _is_too_large(connection, host, entity, some)}:
                raise StatesTooLarge(found) from None
        raise


def _shadow(entity: Entity) -> Shadow:
    return UNIT_SHADOW if entity[0] == UNIT else ENTITY_SHADOW


def _write_alike(
    connection: Connection,
    host: str,
    shadow: Shadow,
    event_type: str,
    columns: tuple[str, ...],
    rows: Sequence[_ShadowRow],
) -> None:
    for part in parts([len(payload) for _, payload, _, _ in rows]):
        values: list[Any] = []
        for entity, payload, newest, more in rows[part]:
            values += (*shadow.key_of(host, entity), payload, newest, *more)
        statement = shadow.write_rows(len(rows[part]), columns)
        connection.exec_driver_sql(statement, (*values, f'$."{event_type}"'))


def _is_too_large(connection: Connection, host: str, entity: Entity, payloads: Sequence[tuple[str, str]]) -> bool:
    """Whether its state would be, after one of these payloads, each with its path, written one after the other. Some
    may be written already.
    """
    shadow = _shadow(entity)
    key = shadow.key_of(host, entity)
    for count in range(1, len(payloads) + 1):
        query = shadow.too_large.format(payloads=", %s, JSON_COMPACT(%s)" * count)
        values = (*key, *(value for pair in payloads[:count] for value in pair))
        if connection.exec_driver_sql(query, values).first() is not None:
            return True
    return False


def parts(sizes: Sequence[int]) -> Iterator[slice]:
    """Split rows of these sizes, in order, into parts that fit into one statement."""
    start, total = 0, 0
    for index, size in enumerate(sizes):
        if total + size > limits.BATCH_STATEMENT_BYTES_MAX:
            yield slice(start, index)
            start, total = index, 0
        total += size
    yield slice(start, len(sizes))
