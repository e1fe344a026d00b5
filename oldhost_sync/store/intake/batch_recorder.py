"""Record a batch of changes in one transaction, with multi-row statements: the same steps as for one change.

The rows of all entities are locked, in the order of their keys, and the idempotency keys are taken, in theirs. If one
was taken before, all is rolled back to a savepoint, and the batch is decided again with the rows then found. Under the
entities' locks the outbox gives out the ids, in the order of the items (I4, trap 19). Last the shadows are written.

`record_changes` waits for each row lock, as `record_change` does. Like that it works in any transaction of its caller:
it locks no gap, and reads nothing by the transaction's view (change_recorder.py says why). A batch of the API or of a
file waits for no lock while it holds the rows of entities: an entity that another transaction has locked is left for a
later transaction (store/intake/batch_submission.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError, OperationalError

from oldhost_sync.policy import limits
from oldhost_sync.store.errors import (
    ChangesRefused,
    EntityRefused,
    InvalidChange,
    TransactionContended,
)
from oldhost_sync.store.intake.batch_keys import BatchKeys, KeysTaken, places_of
from oldhost_sync.store.intake.change_batch import (
    ChangeBatch,
    Decision,
    Entity,
    Group,
    Item,
    Result,
    Unacceptable,
    decide,
)
from oldhost_sync.store.intake.change_recorder import (
    ENTITY_SHADOW,
    NO_WAIT,
    UNIT,
    UNIT_SHADOW,
    RecordedChange,
    Shadow,
    all_or_nothing,
    common_values,
    newly_recorded,
    newly_scheduled,
    reach_entity,
    require_connection,
    stored,
    transaction_needed,
)
from oldhost_sync.store.intake.rules import classes_of
from oldhost_sync.store.intake.shadow_writes import StatesTooLarge, parts, write_shadows
from oldhost_sync.store.intake.state_size import state_too_large
from oldhost_sync.store.intake.validation import Acceptable, accept, change_fields
from oldhost_sync.store.prerequisites import require_hosts
from oldhost_sync.store.transactions import DUPLICATE_KEY, LOCK_WAIT_TIMEOUT, error_code

_SHORT_WAIT = "SET STATEMENT innodb_lock_wait_timeout = 1 FOR "
_IS_AUTOCOMMIT = "SELECT @@autocommit = 1 AND @@in_transaction = 0"
_IS_REGISTERED = "SELECT 1 FROM event_rules WHERE host = %s LIMIT 1 LOCK IN SHARE MODE"
_INSERT_CHANGES = (
    "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
    "source, occurred_at, priority_class, created_at) VALUES "
)
_INSERT_SCHEDULED = (
    "INSERT INTO scheduled_changes (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
    "source, occurred_at, not_before, created_at) VALUES "
)
_CHANGE_ROW = "(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6))"


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
    connection: Connection, changes: Iterable[Mapping[str, Any]], *, host: str, source: str = "python"
) -> list[RecordedChange]:
    """Record up to 500 changes in the caller's transaction; they take effect when the caller commits.

    `changes`: each has `entity_type`, `entity_id`, `event_type`, `payload`, and may have `idempotency_key`,
    `occurred_at`, `not_before`, as for `record_change`. One result for each, in their order. Changes of one entity are
    recorded in their order, and all of them or none.

    Raises ChangesRefused if any is refused; the changes of other entities are recorded nevertheless, and its `results`
    say which. So roll back, or check the results and commit. UnknownHost for a host that is not registered,
    TransactionNeeded for a connection in autocommit mode. Deadlocks are raised as the driver's errors.
    """
    require_connection(connection)
    if connection.exec_driver_sql(_IS_AUTOCOMMIT).scalar_one():
        raise transaction_needed()
    if connection.exec_driver_sql(_IS_REGISTERED, (host,)).first() is None:
        require_hosts(connection, [host], named_by="host")
    items = [_item(host, source, change) for change in changes]
    if len(items) > limits.BATCH_CHANGES_MAX:
        raise InvalidChange(f"a batch has {len(items)} changes; at most {limits.BATCH_CHANGES_MAX} are accepted")
    batch = ChangeBatch(items)
    results = batch.results(record_groups(connection, host, batch.groups, LockWaits.FOR_ALL).results)
    recorded = [result for result in results if isinstance(result, RecordedChange)]
    if len(recorded) < len(results):
        raise ChangesRefused(results)
    return recorded


def _item(host: str, source: str, change: object) -> Item:
    try:
        return accept(host=host, source=source, **change_fields(change))
    except InvalidChange as error:
        return Unacceptable(error, _entity_of(change))


def _entity_of(change: object) -> Entity | None:
    if not isinstance(change, Mapping):
        return None
    entity_type, entity_id = change.get("entity_type"), change.get("entity_id")
    return (entity_type, entity_id) if isinstance(entity_type, str) and isinstance(entity_id, str) else None


def record_groups(connection: Connection, host: str, groups: Sequence[Group], waits: LockWaits) -> Attempt:
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
        except StatesTooLarge as found:
            recorder.too_large |= found.entities
    raise TransactionContended(
        f"other requests used keys of this batch while it was recorded, {limits.BATCH_DECISIONS_MAX} times in a row"
    )


def _wait_for(connection: Connection, host: str, entity: Entity) -> None:
    try:
        reach_entity(connection, host, *entity)
    except OperationalError as error:
        if error_code(error) != LOCK_WAIT_TIMEOUT:
            raise


class _BatchRecorder:
    def __init__(self, connection: Connection, host: str, waits: LockWaits) -> None:
        self._connection = connection
        self._host = host
        self._waits = waits
        self._lock_wait = "" if waits is LockWaits.FOR_ALL else NO_WAIT
        self.keys = BatchKeys(connection, host, self._lock_wait)
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
        wanted = {shadow: some for shadow, some in ((UNIT_SHADOW, units), (ENTITY_SHADOW, others)) if some}
        if self._waits is LockWaits.FOR_ALL:
            for shadow, some in wanted.items():
                self._make(shadow, some, "")
            return set()
        existing = {shadow: self._existing(shadow, some, "") for shadow, some in wanted.items()}
        for shadow, some in wanted.items():
            missing = [entity for entity in some if entity not in existing[shadow]]
            if missing:
                self._make(shadow, missing, _SHORT_WAIT if self._waits is LockWaits.FOR_NEW else NO_WAIT)
        locked: set[Entity] = set()
        for shadow, found in existing.items():
            locked |= found - self._existing(shadow, sorted(found), " FOR UPDATE SKIP LOCKED")
        return locked

    def _existing(self, shadow: Shadow, entities: Sequence[Entity], locking: str) -> set[Entity]:
        """Those of the entities that have a row; type by type, as MariaDB uses no index range for pairs."""
        found: set[Entity] = set()
        for entity_type, some in groupby(entities, itemgetter(0)):
            ids = [entity_id for _, entity_id in some]
            *parents, _ = shadow.key_of(self._host, (entity_type, ids[0]))
            condition = " AND ".join(f"{name} = %s" for name in shadow.key[:-1])
            table = f"{shadow.table} FORCE INDEX (PRIMARY)"
            query = f"SELECT id FROM {table} WHERE {condition} AND id IN ({places_of(len(ids))}){locking}"
            rows = self._connection.exec_driver_sql(query, (*parents, *ids)).scalars()
            found.update((entity_type, entity_id) for entity_id in rows)
        return found

    def _make(self, shadow: Shadow, entities: Sequence[Entity], lock_wait: str) -> None:
        values = tuple(value for entity in entities for value in shadow.key_of(self._host, entity))
        self._connection.exec_driver_sql(lock_wait + shadow.lock_rows(len(entities)), values)

    def _decide(self, group: Group) -> Decision:
        decision = decide(group, self.keys.first_answer)
        if group.entity not in self.too_large or not decision.new:
            return decision
        first, *others = (index for index, _ in decision.new)
        refused: dict[int, Result] = {first: state_too_large(), **{index: EntityRefused(first) for index in others}}
        return Decision(decision.results | refused, [])

    def _write(self, decisions: Sequence[Decision]) -> dict[int, Result]:
        new = sorted((each for decision in decisions for each in decision.new), key=lambda each: each[0])
        if not new:
            return {}
        if self._waits is not LockWaits.FOR_ALL:
            self.keys.take([change for _, change in new])
        later = self.keys.later
        at_once = [change for _, change in new if change.idempotency_key not in later]
        results: dict[str, RecordedChange] = {}
        if later:
            results |= self._insert_scheduled([change for _, change in new if change.idempotency_key in later])
        if at_once:
            results |= self._insert_changes(at_once)
            write_shadows(self._connection, self._host, at_once, results)
        self.keys.connect(results)
        return {index: results[change.idempotency_key] for index, change in new}

    def _insert_scheduled(self, changes: Sequence[Acceptable]) -> dict[str, RecordedChange]:
        rows = [(*common_values(change), stored(change.not_before)) for change in changes]
        made = self._insert(_INSERT_SCHEDULED, changes, rows)
        return {change.idempotency_key: newly_scheduled(change, *made[change.idempotency_key]) for change in changes}

    def _insert_changes(self, changes: Sequence[Acceptable]) -> dict[str, RecordedChange]:
        event_types = {change.event_type for change in changes}
        classes = classes_of(self._connection, self._host, event_types, locking=self._waits is LockWaits.FOR_ALL)
        rows = [(*common_values(change), classes[change.event_type]) for change in changes]
        made = self._insert(_INSERT_CHANGES, changes, rows)
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
            places = ", ".join([_CHANGE_ROW] * len(rows[part]))
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
