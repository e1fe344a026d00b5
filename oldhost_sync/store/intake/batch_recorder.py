"""Record a batch of changes in one transaction, with multi-row statements: the same steps as for one change.

Before the database is asked, the items are grouped by their entities. All or nothing for each entity: if one item is
refused, no new item of its entity is recorded. An item whose key is in the database already gets its first answer in
any case. Within a batch a key identifies one change: the same change again gets the answer of the first, and a
different change with the same key is refused.

Then the rows of all entities are locked, in the order of their keys, and the idempotency keys are taken, in theirs. If
one was taken before, all is rolled back to a savepoint, and the batch is decided again with the rows then found. Under
the entities' locks the outbox gives out the ids, in the order of the items (I4, trap 19). Last the shadows are written.

`record_changes` waits for each row lock, as `record_change` does. Like that it works in any transaction of its caller:
it locks no gap, and reads nothing by the transaction's view (change_recorder.py says why). A batch of the API or of a
file waits for no lock while it holds the rows of entities: an entity that another transaction has locked is left for a
later transaction (batch_submission.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, auto
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError, OperationalError

from oldhost_sync.policy import limits
from oldhost_sync.store.callers_connection import Statements, statements_of
from oldhost_sync.store.errors import (
    DUPLICATE_KEY,
    LOCK_WAIT_TIMEOUT,
    EntityRefused,
    IdempotencyConflict,
    InvalidChange,
    StoreError,
    TransactionContended,
    error_code,
)
from oldhost_sync.store.intake.change_recorder import (
    CHANGE_COLUMNS,
    CHANGE_ROW,
    INSERT_CHANGE,
    INSERT_SCHEDULED,
    NO_WAIT,
    SCHEDULED_COLUMNS,
    RecordedChange,
    all_or_nothing,
    common_values,
    earlier_change,
    earlier_schedule,
    newly_recorded,
    newly_scheduled,
    stored,
    transaction_needed,
)
from oldhost_sync.store.intake.current_trace import current_traceparent
from oldhost_sync.store.intake.rules import classes_of, require_hosts
from oldhost_sync.store.intake.shadow import (
    ENTITY_SHADOW,
    UNIT,
    UNIT_SHADOW,
    Entity,
    Shadow,
    StatesTooLarge,
    parts,
    reach_entity,
    state_too_large,
    write_shadows,
)
from oldhost_sync.store.intake.validation import Acceptable, accept, change_fields
from oldhost_sync.store.mappings import check_mapped, definition_of

# ------------------------------------------------------------------------------------------------------------ the items

Result = RecordedChange | StoreError
# The first answer to a change whose key is known; an IdempotencyConflict; or None if the key is new.
FirstAnswer = Callable[[Acceptable], Result | None]


@dataclass(frozen=True, slots=True)
class Unacceptable:
    """An item that is refused because of its own fields; `entity` if that could be read."""

    error: InvalidChange
    entity: Entity | None = None


Item = Acceptable | Unacceptable


@dataclass(slots=True)
class Group:
    """The items of one entity with their places in the batch, in order; each key once."""

    entity: Entity
    items: list[tuple[int, Item]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one group: the results already known, and the changes to be recorded, all of them or none."""

    results: dict[int, Result]
    new: list[tuple[int, Acceptable]]


class ChangesRefused(InvalidChange):
    """Some changes of a batch were refused; `results` has the result of each, in the batch's order."""

    def __init__(self, results: Sequence[Result]) -> None:
        refused = [(index, result) for index, result in enumerate(results) if isinstance(result, StoreError)]
        index, first = next((each for each in refused if not isinstance(each[1], EntityRefused)), refused[0])
        super().__init__(f"{len(refused)} of {len(results)} changes were refused; item {index}: {first}")
        self.results = list(results)


class ChangeBatch:
    """`groups`: what is to be recorded. `results` puts their results into the order of the items."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._count = len(items)
        # Items that are refused and whose entity is unknown.
        self._alone: dict[int, Result] = {}
        # By item that repeats a change: the first item with the same key and change.
        self._repeats: dict[int, int] = {}
        groups: dict[Entity, Group] = {}
        firsts: dict[str, tuple[int, Acceptable]] = {}
        for index, item in enumerate(items):
            if isinstance(item, Acceptable):
                first, change = firsts.setdefault(item.idempotency_key, (index, item))
                if first != index and change.request_hash == item.request_hash:
                    self._repeats[index] = first
                else:
                    entity = (item.entity_type, item.entity_id)
                    kept = item if first == index else Unacceptable(_key_taken(item, first), entity)
                    groups.setdefault(entity, Group(entity)).items.append((index, kept))
            elif item.entity is None:
                self._alone[index] = item.error
            else:
                groups.setdefault(item.entity, Group(item.entity)).items.append((index, item))
        self.groups = list(groups.values())

    def results(self, of_groups: Mapping[int, Result]) -> list[Result]:
        """One result for each item, in their order."""
        answers = {**of_groups, **self._alone}
        for index, first in self._repeats.items():
            answer = answers[first]
            answers[index] = replace(answer, duplicate=True) if isinstance(answer, RecordedChange) else answer
        return [answers[index] for index in range(self._count)]


def decide(group: Group, first_answer: FirstAnswer) -> Decision:
    """Decide which changes of the group are recorded now."""
    results: dict[int, Result] = {}
    new: list[tuple[int, Acceptable]] = []
    for index, item in group.items:
        known = item.error if isinstance(item, Unacceptable) else first_answer(item)
        if known is not None:
            results[index] = known
        elif isinstance(item, Acceptable):
            new.append((index, item))
    refused = [index for index, result in results.items() if isinstance(result, StoreError)]
    if refused:
        results |= {index: EntityRefused(refused[0]) for index, _ in new}
        new = []
    return Decision(results, new)


def _key_taken(change: Acceptable, first: int) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"idempotency key {change.idempotency_key} is also that of item {first} of the batch, a different change"
    )


# ------------------------------------------------------------------------------------------------------------- the keys

# Taken keys cause no error, and are not returned.
_TAKE_KEYS = "INSERT IGNORE INTO submitted_keys (host, idempotency_key, is_scheduled) VALUES "
_KEY_ROW = "(%s, %s, %s)"
_KEYS_HAVE_ROWS = "INSERT INTO submitted_keys (host, idempotency_key, is_scheduled, row_id) VALUES "
_KEY_WITH_ROW = "(%s, %s, FALSE, %s)"
_ROWS_OF_KEYS = (
    "SELECT idempotency_key, is_scheduled, row_id FROM submitted_keys FORCE INDEX (PRIMARY) "
    "WHERE host = %s AND idempotency_key IN "
)
_ROWS = {
    "outbox_events": f"SELECT {CHANGE_COLUMNS} FROM outbox_events FORCE INDEX (PRIMARY) WHERE id IN ",
    "scheduled_changes": f"SELECT {SCHEDULED_COLUMNS} FROM scheduled_changes FORCE INDEX (PRIMARY) WHERE id IN ",
}
# The index is forced: with another index of the host, a locking read would lock all its rows.
_KNOWN = {
    table: (
        f"SELECT {columns} FROM {table} FORCE INDEX (uq_{table}_idempotency_key) "
        "WHERE host = %s AND idempotency_key IN "
    )
    for table, columns in (("outbox_events", CHANGE_COLUMNS), ("scheduled_changes", SCHEDULED_COLUMNS))
}


class KeysTaken(Exception):  # noqa: N818 - an event, not a mistake
    """These keys were taken before, or between the read and the write."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__("keys are taken")
        self.keys = keys


class NotAllMapped(Exception):  # noqa: N818 - an event, not a mistake
    """The mapping makes no operation of these changes."""

    def __init__(self, by_key: Mapping[str, InvalidChange]) -> None:
        super().__init__("not mapped")
        self.by_key = by_key


class BatchKeys:
    """The keys of one batch, in the transaction of `connection`. `later`: those of the changes that are not due yet.
    `lock_wait`: what a statement begins with that meets the locks of others.
    """

    def __init__(self, connection: Statements, host: str, lock_wait: str) -> None:
        self._connection = connection
        self._host = host
        self._lock_wait = lock_wait
        self._known: dict[str, dict[str, Row[*tuple[Any, ...]]]] = {table: {} for table in _KNOWN}
        self.later: set[str] = set()

    def look_for(self, keys: Sequence[str]) -> None:
        """Remember the rows that have these keys, as they are committed."""
        for table, query in _KNOWN.items() if keys else ():
            self._remember(table, f"{query}({places_of(len(keys))})", self._host, *keys)

    def learn(self, taken: Sequence[str]) -> None:
        """Remember the rows that have these keys; waits for transactions that write them. Each row is read where it is:
        a locking read of a row that is missing would lock a gap.
        """
        query = f"{self._lock_wait}{_ROWS_OF_KEYS}({places_of(len(taken))}) LOCK IN SHARE MODE"
        places = self._connection.exec_driver_sql(query, (self._host, *taken)).all()
        for table, is_scheduled in (("scheduled_changes", True), ("outbox_events", False)):
            ids = [place.row_id for place in places if place.is_scheduled == is_scheduled]
            if ids:
                query = f"{self._lock_wait}{_ROWS[table]}({places_of(len(ids))}) LOCK IN SHARE MODE"
                self._remember(table, query, *ids)
        # Rows that were written without taking their keys.
        others = [key for key in taken if not any(key in known for known in self._known.values())]
        if others:
            query = f"{self._lock_wait}{_KNOWN['outbox_events']}({places_of(len(others))}) LOCK IN SHARE MODE"
            self._remember("outbox_events", query, self._host, *others)

    def _remember(self, table: str, query: str, *values: object) -> None:
        rows = self._connection.exec_driver_sql(query, values).all()
        self._known[table].update({row.idempotency_key: row for row in rows})

    def first_answer(self, change: Acceptable) -> Result | None:
        key = change.idempotency_key
        try:
            # A scheduled change that was recorded has a row in both tables; its first answer was the schedule's.
            if (known := self._known["scheduled_changes"].get(key)) is not None:
                return earlier_schedule(change, known)
            if (known := self._known["outbox_events"].get(key)) is not None:
                return earlier_change(change, known)
        except IdempotencyConflict as conflict:
            return conflict
        return None

    def take(self, changes: Sequence[Acceptable]) -> None:
        """Raises KeysTaken if one was taken before."""
        if not changes:
            return
        self.later = self._not_due([change for change in changes if change.not_before is not None])
        keys = sorted(change.idempotency_key for change in changes)
        values = [value for key in keys for value in (self._host, key, int(key in self.later))]
        statement = f"{self._lock_wait}{_TAKE_KEYS}{', '.join([_KEY_ROW] * len(keys))} RETURNING idempotency_key"
        mine = set(self._connection.exec_driver_sql(statement, tuple(values)).scalars())
        if len(mine) < len(keys):
            raise KeysTaken([key for key in keys if key not in mine])

    def connect(self, recorded: Mapping[str, RecordedChange]) -> None:
        """Write the id of each change to its key."""
        values: list[object] = []
        for key, change in sorted(recorded.items()):
            values += (self._host, key, change.change_id or change.scheduled_id)
        places = ", ".join([_KEY_WITH_ROW] * len(recorded))
        statement = f"{_KEYS_HAVE_ROWS}{places} ON DUPLICATE KEY UPDATE row_id = VALUES(row_id)"
        self._connection.exec_driver_sql(statement, tuple(values))

    def _not_due(self, planned: Sequence[Acceptable]) -> set[str]:
        """The keys of those that are not due yet, by the database's clock."""
        if not planned:
            return set()
        now = self._connection.exec_driver_sql("SELECT UTC_TIMESTAMP(6)").scalar_one().replace(tzinfo=UTC)
        return {
            change.idempotency_key for change in planned if change.not_before is not None and change.not_before > now
        }


def places_of(count: int) -> str:
    return ", ".join(["%s"] * count)


_SHORT_WAIT = "SET STATEMENT innodb_lock_wait_timeout = 1 FOR "
_IS_AUTOCOMMIT = "SELECT @@autocommit = 1 AND @@in_transaction = 0"
_IS_REGISTERED = "SELECT 1 FROM event_rules WHERE host = %s LIMIT 1 LOCK IN SHARE MODE"


class LockWaits(Enum):
    """Which locks a transaction waits for; any other conflict raises the database's error at once."""

    FOR_ALL = auto()
    # Only for entities that other transactions are creating, at most a second and before it locks an existing row.
    FOR_NEW = auto()
    # Only for the first group's row, at most a second and before anything else.
    FOR_FIRST = auto()
    FOR_NOTHING = auto()


@dataclass(slots=True)
class Attempt:
    """What one transaction did. `results`: by place in the batch. `locked`: the groups whose row another transaction
    has locked.
    """

    results: dict[int, Result] = field(default_factory=dict)
    locked: list[Group] = field(default_factory=list)


def record_changes(
    connection: object,
    changes: Iterable[Mapping[str, Any]],
    *,
    host: str,
    source: str = "python",
    schema: str | None = None,
) -> list[RecordedChange]:
    """Record up to 500 changes in the caller's transaction; they take effect when the caller commits.

    `changes`: each has `entity_type`, `entity_id`, `event_type`, `payload`, and may have `idempotency_key`,
    `occurred_at`, `not_before`, `traceparent`, as for `record_change`. One result for each, in their order. Changes of
    one entity are recorded in their order, and all of them or none.

    Raises ChangesRefused if any is refused; the changes of other entities are recorded nevertheless, and its `results`
    say which. So roll back, or check the results and commit. UnknownHost for a host that is not registered,
    TransactionNeeded for a connection in autocommit mode. Deadlocks are raised as the driver's errors. `connection`,
    `schema`: as for `record_change`.
    """
    with statements_of(connection, schema) as statements:
        return _record_changes(statements, changes, host, source)


def _record_changes(
    connection: Statements, changes: Iterable[Mapping[str, Any]], host: str, source: str
) -> list[RecordedChange]:
    if connection.exec_driver_sql(_IS_AUTOCOMMIT).scalar_one():
        raise transaction_needed()
    if connection.exec_driver_sql(_IS_REGISTERED, (host,)).first() is None:
        require_hosts(connection, [host], named_by="host")
    traceparent = current_traceparent()
    items = [_item(host, source, change, traceparent) for change in changes]
    if len(items) > limits.BATCH_CHANGES_MAX:
        raise InvalidChange(f"a batch has {len(items)} changes; at most {limits.BATCH_CHANGES_MAX} are accepted")
    batch = ChangeBatch(items)
    results = batch.results(record_groups(connection, host, batch.groups, LockWaits.FOR_ALL).results)
    recorded = [result for result in results if isinstance(result, RecordedChange)]
    if len(recorded) < len(results):
        raise ChangesRefused(results)
    return recorded


def _item(host: str, source: str, change: object, traceparent: str | None) -> Item:
    try:
        return accept(host=host, source=source, **change_fields(change, traceparent))
    except InvalidChange as error:
        return Unacceptable(error, _entity_of(change))


def _entity_of(change: object) -> Entity | None:
    if not isinstance(change, Mapping):
        return None
    entity_type, entity_id = change.get("entity_type"), change.get("entity_id")
    return (entity_type, entity_id) if isinstance(entity_type, str) and isinstance(entity_id, str) else None


def record_groups(connection: Statements, host: str, groups: Sequence[Group], waits: LockWaits) -> Attempt:
    """Record the groups in the caller's transaction. Unless `waits` is FOR_ALL, some may be left in `locked`."""
    if waits is LockWaits.FOR_FIRST:
        _wait_for(connection, host, groups[0].entity)
    recorder = _BatchRecorder(connection, host, waits)
    if waits is not LockWaits.FOR_ALL:
        recorder.keys.look_for(_given_keys(item for group in groups for _, item in group.items))
    for _ in range(limits.BATCH_DECISIONS_MAX):
        try:
            with all_or_nothing(connection):
                return recorder.record(groups)
        except KeysTaken as taken:
            recorder.keys.learn(taken.keys)
        except StatesTooLarge as error:
            recorder.too_large |= error.entities
        except NotAllMapped as error:
            recorder.not_mapped |= error.by_key
    raise TransactionContended(
        f"other requests used keys of this batch while it was recorded, {limits.BATCH_DECISIONS_MAX} times in a row"
    )


def _wait_for(connection: Statements, host: str, entity: Entity) -> None:
    try:
        reach_entity(connection, host, entity)
    except OperationalError as error:
        if error_code(error) != LOCK_WAIT_TIMEOUT:
            raise


class _BatchRecorder:
    def __init__(self, connection: Statements, host: str, waits: LockWaits) -> None:
        self._connection = connection
        self._host = host
        self._waits = waits
        self._lock_wait = "" if waits is LockWaits.FOR_ALL else NO_WAIT
        self.keys = BatchKeys(connection, host, self._lock_wait)
        # By key, the changes that the host's mapping makes no operation of. Found once their keys are known to be new:
        # a known key gets its first answer, whatever the mapping is by now.
        self.not_mapped: dict[str, InvalidChange] = {}
        # The entities whose states can't take their changes of this batch.
        self.too_large: set[Entity] = set()

    def record(self, groups: Sequence[Group]) -> Attempt:
        """One try; raises KeysTaken or StatesTooLarge."""
        decided = [(group, self._decide(group)) for group in groups]
        if self._waits is LockWaits.FOR_ALL:
            # Before any entity is locked: a repeated batch waits for nobody.
            self.keys.take([change for _, decision in decided for _, change in decision.new])
        locked = self._lock([group.entity for group, decision in decided if decision.new])
        attempt = Attempt(locked=[group for group, _ in decided if group.entity in locked])
        decisions = [decision for group, decision in decided if group.entity not in locked]
        for decision in decisions:
            attempt.results.update(decision.results)
        attempt.results.update(self._write(decisions))
        return attempt

    def _lock(self, entities: Sequence[Entity]) -> set[Entity]:
        """Lock the entities' rows, and create the missing ones. Returns the entities that another transaction has
        locked.
        """
        units = sorted(entity for entity in entities if entity[0] == UNIT)
        others = sorted(entity for entity in entities if entity[0] != UNIT)
        wanted = {
            shadow: of_shadow for shadow, of_shadow in ((UNIT_SHADOW, units), (ENTITY_SHADOW, others)) if of_shadow
        }
        if self._waits is LockWaits.FOR_ALL:
            for shadow, of_shadow in wanted.items():
                self._make(shadow, of_shadow, "")
            return set()
        existing = {shadow: self._existing(shadow, of_shadow, "") for shadow, of_shadow in wanted.items()}
        for shadow, of_shadow in wanted.items():
            missing = [entity for entity in of_shadow if entity not in existing[shadow]]
            if missing:
                self._make(shadow, missing, _SHORT_WAIT if self._waits is LockWaits.FOR_NEW else NO_WAIT)
        locked: set[Entity] = set()
        for shadow, present in existing.items():
            locked |= present - self._existing(shadow, sorted(present), " FOR UPDATE SKIP LOCKED")
        return locked

    def _existing(self, shadow: Shadow, entities: Sequence[Entity], locking: str) -> set[Entity]:
        """Those of the entities that have a row; type by type, as MariaDB uses no index range for pairs."""
        existing: set[Entity] = set()
        for entity_type, of_type in groupby(entities, itemgetter(0)):
            ids = [entity_id for _, entity_id in of_type]
            *parents, _ = shadow.key_of(self._host, (entity_type, ids[0]))
            condition = " AND ".join(f"{name} = %s" for name in shadow.key[:-1])
            table = f"{shadow.table} FORCE INDEX (PRIMARY)"
            query = f"SELECT id FROM {table} WHERE {condition} AND id IN ({places_of(len(ids))}){locking}"
            rows = self._connection.exec_driver_sql(query, (*parents, *ids)).scalars()
            existing.update((entity_type, entity_id) for entity_id in rows)
        return existing

    def _make(self, shadow: Shadow, entities: Sequence[Entity], lock_wait: str) -> None:
        values = tuple(value for entity in entities for value in shadow.key_of(self._host, entity))
        self._connection.exec_driver_sql(lock_wait + shadow.lock_rows(len(entities)), values)

    def _decide(self, group: Group) -> Decision:
        decision = decide(group, lambda change: self.keys.first_answer(change) or self._not_mapped(change))
        if group.entity not in self.too_large or not decision.new:
            return decision
        first, *others = (index for index, _ in decision.new)
        refused: dict[int, Result] = {first: state_too_large(), **{index: EntityRefused(first) for index in others}}
        return Decision(decision.results | refused, [])

    def _not_mapped(self, change: Acceptable) -> InvalidChange | None:
        return self.not_mapped.get(change.idempotency_key)

    def _check_mapped(self, changes: Sequence[Acceptable]) -> None:
        """Raises NotAllMapped."""
        definition = definition_of(self._connection, self._host, locking=self._waits is LockWaits.FOR_ALL)
        refused: dict[str, InvalidChange] = {}
        for change in changes:
            try:
                check_mapped(definition, change)
            except InvalidChange as error:
                refused[change.idempotency_key] = error
        if refused:
            raise NotAllMapped(refused)

    def _write(self, decisions: Sequence[Decision]) -> dict[int, Result]:
        new = sorted((item for decision in decisions for item in decision.new), key=lambda item: item[0])
        if not new:
            return {}
        if self._waits is not LockWaits.FOR_ALL:
            self.keys.take([change for _, change in new])
        self._check_mapped([change for _, change in new])
        later = self.keys.later
        at_once = [change for _, change in new if change.idempotency_key not in later]
        results: dict[str, RecordedChange] = {}
        if later:
            results |= self._insert_scheduled([change for _, change in new if change.idempotency_key in later])
        if at_once:
            results |= self._insert_changes(at_once)
            ids = {key: change.change_id for key, change in results.items()}
            write_shadows(self._connection, self._host, at_once, ids)
        self.keys.connect(results)
        return {index: results[change.idempotency_key] for index, change in new}

    def _insert_scheduled(self, changes: Sequence[Acceptable]) -> dict[str, RecordedChange]:
        rows = [(*common_values(change), stored(change.not_before)) for change in changes]
        made = self._insert(INSERT_SCHEDULED, changes, rows)
        return {change.idempotency_key: newly_scheduled(change, *made[change.idempotency_key]) for change in changes}

    def _insert_changes(self, changes: Sequence[Acceptable]) -> dict[str, RecordedChange]:
        event_types = {change.event_type for change in changes}
        classes = classes_of(self._connection, self._host, event_types, locking=self._waits is LockWaits.FOR_ALL)
        rows = [(*common_values(change), classes[change.event_type]) for change in changes]
        made = self._insert(INSERT_CHANGE, changes, rows)
        recorded: dict[str, RecordedChange] = {}
        for change in changes:
            change_id, created_at = made[change.idempotency_key]
            recorded[change.idempotency_key] = newly_recorded(change, change_id, classes[change.event_type], created_at)
        return recorded

    def _insert(
        self, head: str, changes: Sequence[Acceptable], rows: Sequence[tuple[Any, ...]]
    ) -> dict[str, tuple[int, datetime]]:
        """Insert one row for each change, in their order; returns id and time by key."""
        made: dict[str, tuple[int, datetime]] = {}
        for part in parts([len(change.payload) for change in changes]):
            values = tuple(value for row in rows[part] for value in row)
            places = ", ".join([CHANGE_ROW] * len(rows[part]))
            statement = f"{self._lock_wait}{head}{places} RETURNING idempotency_key, id, created_at"
            try:
                returned = self._connection.exec_driver_sql(statement, values).all()
            except IntegrityError as error:
                # A row that somebody wrote without taking its key.
                if error_code(error) == DUPLICATE_KEY:
                    raise KeysTaken([change.idempotency_key for change in changes[part]]) from None
                raise
            made.update({key: (row_id, created_at) for key, row_id, created_at in returned})
        return made


def _given_keys(items: Iterable[Item]) -> list[str]:
    """The keys that may have been used before; one that was just generated is new."""
    return [item.idempotency_key for item in items if isinstance(item, Acceptable) and not item.key_is_new]
