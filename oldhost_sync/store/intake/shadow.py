"""The shadow rows: an entity's newest accepted state, `{event_type: last payload}`, in `units` or `entities`.

Who records a change first locks its entity's row, and creates it if it is new; last the state is written into it. The
statements are plain SQL for the driver, for speed: every write uses them, 300 a second. A state has a largest size: the
database refuses what is above it, as the constraints of its tables say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy.limits import BATCH_STATEMENT_BYTES_MAX, STATE_BYTES_MAX
from oldhost_sync.store.callers_connection import Statements
from oldhost_sync.store.errors import CHECK_VIOLATED, InvalidChange, error_code
from oldhost_sync.store.intake.validation import UNIT_COLUMNS, Acceptable
from oldhost_sync.store.tables import STATE_SIZE

UNIT = "unit"
# Type and id.
Entity = tuple[str, str]


class StatesTooLarge(Exception):  # noqa: N818 - an event, not a mistake
    """The states of these entities would be larger than a state may be."""

    def __init__(self, entities: set[Entity]) -> None:
        super().__init__("states are too large")
        self.entities = entities


def state_too_large() -> InvalidChange:
    message = (
        "event_type is one too many for this entity: the last payloads of all its event types may have at most "
        f"{STATE_BYTES_MAX} bytes of JSON"
    )
    return InvalidChange(message, "event_type")


def unless_autocommit(value: str) -> str:
    """`value`, or NULL, which its column refuses, if each statement is committed by itself. The server knows, whatever
    the driver.
    """
    return f"IF(@@autocommit = 1 AND @@in_transaction = 0, NULL, {value})"


class Shadow:
    """The statements for one row of a table of shadow states, whose primary key is `key`."""

    def __init__(self, table: str, *key: str) -> None:
        row = " AND ".join(f"{name} = %s" for name in key)
        self.table, self.key = table, key
        self.lock = self.lock_rows(1, unless_autocommit("'{}'"))
        # With a short lock wait, for callers that have other work to do.
        self.reach = f"SET STATEMENT innodb_lock_wait_timeout = 1 FOR SELECT 1 FROM {table} WHERE {row} FOR UPDATE"
        self.lock_free = f"SELECT 1 FROM {table} WHERE {row} FOR UPDATE NOWAIT"
        # By the key but its last part, the id.
        of_type = " AND ".join(f"{name} = %s" for name in key[:-1])
        self.lock_all_free = f"SELECT id FROM {table} WHERE {of_type} AND id IN ({{ids}}) FOR UPDATE SKIP LOCKED"
        self.clear = (
            f"UPDATE {table} SET state = JSON_REMOVE(state, %s), "
            f"newest_change_id = %s, {{columns}}updated_at = UTC_TIMESTAMP(6) WHERE {row}"
        )
        self.write = (
            f"UPDATE {table} SET state = JSON_SET(state, %s, JSON_COMPACT(%s)), "
            f"newest_change_id = %s, {{columns}}updated_at = UTC_TIMESTAMP(6) WHERE {row}"
        )
        # After a refused write: whether the state of a row, which is locked already, would be too large.
        self.too_large = (
            f"SELECT 1 FROM {table} WHERE {row} AND OCTET_LENGTH(JSON_SET(state{{payloads}})) > {STATE_BYTES_MAX} "
            "LOCK IN SHARE MODE"
        )

    def lock_rows(self, count: int, state: str = "'{}'") -> str:
        """Lock `count` rows in the order of their keys; missing rows are created, empty."""
        row = f"({'%s, ' * len(self.key)}{state}, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
        head = f"INSERT INTO {self.table} ({', '.join(self.key)}, state, created_at, updated_at) VALUES "
        return f"{head}{', '.join([row] * count)} ON DUPLICATE KEY UPDATE id = id"

    def write_rows(self, count: int, columns: Sequence[str]) -> str:
        """As `write`, for locked rows. Values per row: key, payload, newest change, `columns`; at the end: the path."""
        names = (*self.key, "state", "newest_change_id", *columns)
        row = f"({'%s, ' * len(names)}UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
        taken = ", ".join(f"{name} = VALUES({name})" for name in ("newest_change_id", *columns))
        return (
            f"INSERT INTO {self.table} ({', '.join(names)}, created_at, updated_at) VALUES {', '.join([row] * count)} "
            f"ON DUPLICATE KEY UPDATE state = JSON_SET(state, %s, JSON_COMPACT(VALUES(state))), "
            f"{taken}, updated_at = UTC_TIMESTAMP(6)"
        )

    def key_of(self, host: str, entity: Entity) -> tuple[str, ...]:
        return (host, *entity) if len(self.key) == 3 else (host, entity[1])


UNIT_SHADOW = Shadow("units", "host", "id")
ENTITY_SHADOW = Shadow("entities", "host", "entity_type", "id")


def shadow_of(entity: Entity) -> Shadow:
    return UNIT_SHADOW if entity[0] == UNIT else ENTITY_SHADOW


def reach_entity(connection: Statements, host: str, entity: Entity) -> None:
    """Lock the entity's row if there is one, waiting at most a second; raises the database's error on a conflict."""
    shadow = shadow_of(entity)
    connection.exec_driver_sql(shadow.reach, shadow.key_of(host, entity))


def lock_free_entity(connection: Statements, host: str, entity: Entity) -> None:
    """Lock the entity's row if it has one; raises the database's "lock wait" error at once if it is locked already."""
    shadow = shadow_of(entity)
    connection.exec_driver_sql(shadow.lock_free, shadow.key_of(host, entity)).all()


def lock_free_entities(connection: Statements, host: str, entities: Iterable[Entity]) -> set[Entity]:
    """Lock the rows of these that no other transaction has locked; those are returned."""
    ids: dict[str, list[str]] = {}
    for entity_type, entity_id in sorted(entities):
        ids.setdefault(entity_type, []).append(entity_id)
    locked: set[Entity] = set()
    for entity_type, of_type in ids.items():
        shadow = shadow_of((entity_type, ""))
        statement = shadow.lock_all_free.format(ids=", ".join(["%s"] * len(of_type)))
        values = (*shadow.key_of(host, (entity_type, ""))[:-1], *of_type)
        locked |= {(entity_type, entity_id) for (entity_id,) in connection.exec_driver_sql(statement, values).all()}
    return locked


def clear_shadow(connection: Statements, host: str, entity: Entity, event_type: str, newest: int | None) -> None:
    """Nothing is known of this event type any more; `newest`: the entity's newest change. Its row must be locked."""
    shadow = shadow_of(entity)
    names = UNIT_COLUMNS.get(event_type, {}) if entity[0] == UNIT else {}
    columns = "".join(f"{name} = NULL, " for name in names)
    values = (_path(event_type), newest, *shadow.key_of(host, entity))
    connection.exec_driver_sql(shadow.clear.format(columns=columns), values)


def write_shadow(connection: Statements, change: Acceptable, change_id: int) -> None:
    """Write one change into its entity's row, which must be locked."""
    entity = (change.entity_type, change.entity_id)
    shadow = shadow_of(entity)
    columns = "".join(f"{name} = %s, " for name, _ in change.columns)
    key = shadow.key_of(change.host, entity)
    values = (_path(change.event_type), change.payload, change_id, *(value for _, value in change.columns), *key)
    try:
        connection.exec_driver_sql(shadow.write.format(columns=columns), values)
    except DBAPIError as error:
        if _says_too_large(error):
            raise state_too_large() from None
        raise


# Entity, payload, newest change, and the values of the unit's own columns.
_Row = tuple[Entity, str, int | None, tuple[str | None, ...]]


def write_shadows(
    connection: Statements, host: str, changes: Sequence[Acceptable], change_ids: Mapping[str, int | None]
) -> None:
    """Write each entity's last payload of each event type and its newest change, one statement per event type. The rows
    must be locked. `change_ids`: by idempotency key. Raises StatesTooLarge.
    """
    newest: dict[Entity, int | None] = {}
    last: dict[tuple[str, Entity], tuple[str, dict[str, str | None]]] = {}
    for change in changes:
        entity = (change.entity_type, change.entity_id)
        newest[entity] = change_ids[change.idempotency_key]
        _, columns = last.get((change.event_type, entity), ("", {}))
        last[change.event_type, entity] = (change.payload, {**columns, **dict(change.columns)})
    alike: dict[tuple[Shadow, str, tuple[str, ...]], list[_Row]] = {}
    for (event_type, entity), (payload, columns) in last.items():
        row = (entity, payload, newest[entity], tuple(columns.values()))
        alike.setdefault((shadow_of(entity), event_type, tuple(columns)), []).append(row)
    try:
        for (shadow, event_type, names), rows in alike.items():
            _write_alike(connection, host, shadow, event_type, names, rows)
    except DBAPIError as error:
        if _says_too_large(error):
            payloads: dict[Entity, list[tuple[str, str]]] = {}
            for (_, event_type, _), rows in alike.items():
                for entity, payload, _, _ in rows:
                    payloads.setdefault(entity, []).append((_path(event_type), payload))
            if too_large := {
                entity for entity, of_entity in payloads.items() if _is_too_large(connection, host, entity, of_entity)
            }:
                raise StatesTooLarge(too_large) from None
        raise


def _write_alike(
    connection: Statements, host: str, shadow: Shadow, event_type: str, columns: tuple[str, ...], rows: Sequence[_Row]
) -> None:
    for part in parts([len(payload) for _, payload, _, _ in rows]):
        values: list[Any] = []
        for entity, payload, newest, more in rows[part]:
            values += (*shadow.key_of(host, entity), payload, newest, *more)
        connection.exec_driver_sql(shadow.write_rows(len(rows[part]), columns), (*values, _path(event_type)))


def _is_too_large(connection: Statements, host: str, entity: Entity, payloads: Sequence[tuple[str, str]]) -> bool:
    """Whether its state would be, after one of these payloads, each with its path, written one after the other. Some
    may be written already.
    """
    shadow = shadow_of(entity)
    key = shadow.key_of(host, entity)
    for count in range(1, len(payloads) + 1):
        query = shadow.too_large.format(payloads=", %s, JSON_COMPACT(%s)" * count)
        values = (*key, *(value for pair in payloads[:count] for value in pair))
        if connection.exec_driver_sql(query, values).first() is not None:
            return True
    return False


def _says_too_large(error: DBAPIError) -> bool:
    return error_code(error) == CHECK_VIOLATED and STATE_SIZE in str(error.orig)


def _path(event_type: str) -> str:
    return f'$."{event_type}"'


def parts(sizes: Sequence[int]) -> Iterator[slice]:
    """Split rows of these sizes, in order, into parts that fit into one statement."""
    start, total = 0, 0
    for index, size in enumerate(sizes):
        if total + size > BATCH_STATEMENT_BYTES_MAX:
            yield slice(start, index)
            start, total = index, 0
        total += size
    yield slice(start, len(sizes))
