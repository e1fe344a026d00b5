"""What an application records in its tests, without a server: `record_change` and `record_changes` on SQLite.

They run as they are, in the transaction of the connection that they are given: of SQLAlchemy, of Django, or of
`sqlite3`. Our tables are made in its database when it is first used. There is no writer and no OldHost: `settle`,
`reject` and `withdraw` say how changes end.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from oldhost_sync.drivers.mapping import HostMapping, to_text
from oldhost_sync.policy.changes import WAITING, Outcome, PriorityClass
from oldhost_sync.store import callers_connection
from oldhost_sync.store.callers_connection import Statements
from oldhost_sync.store.intake.rules import DEFAULT_RULES
from oldhost_sync.store.intake.shadow import clear_shadow, shadow_of, write_shadow
from oldhost_sync.store.intake.validation import accept
from oldhost_sync.testing.sqlite_statements import TABLES, SqliteStatements, create

if TYPE_CHECKING:
    import httpx

_FIRST_HOST = "oldhost"
_DRIVERS = ("sqlite3",)
# Of these an engine has one connection, perhaps within a transaction.
_SHARED = (StaticPool, SingletonThreadPool)
# Names the recorder whose tables these are, with the number of its rules: another test begins with empty ones.
_MARK = "oldhost_sync_recorder"
_CHANGES = (
    "SELECT id AS change_id, host, idempotency_key, entity_type, entity_id, event_type, payload, priority_class, "
    "source, outcome, nonce, superseded_by, error FROM outbox_events WHERE host = %s ORDER BY id"
)
_END = (
    "UPDATE outbox_events SET outcome = %s, nonce = %s, superseded_by = %s, error = %s, "
    "processed_at = UTC_TIMESTAMP(6) WHERE id = %s"
)
_TOLD = (
    "idempotency_key", "change_id", "entity_type", "entity_id", "event_type", "priority_class", "nonce", "error",
    "superseded_by",
)  # fmt: skip
_MAP = "INSERT OR REPLACE INTO host_mappings (host, label, definition, in_use) VALUES (%s, %s, %s, 1)"


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A change as it was recorded. `outcome`: None until it has its fate; `error`: why OldHost rejected it."""

    change_id: int
    host: str
    idempotency_key: str
    entity_type: str
    entity_id: str
    event_type: str
    payload: dict[str, Any]
    priority_class: str
    source: str
    outcome: str | None
    nonce: int | None
    superseded_by: int | None
    error: str | None

    @property
    def key(self) -> tuple[str, str, str]:
        """By which newer LWW changes supersede older ones."""
        return self.entity_type, self.entity_id, self.event_type


class Recorder:
    """The fixture `oldhost_sync_recorder`. It knows the host `oldhost`, with the rules that the product begins with.

    `connection` of its methods: as for `record_change`; None: of the same database as the one on which a change was
    recorded last.
    """

    def __init__(self) -> None:
        self._id = str(uuid.uuid4())
        self._rules: list[tuple[str, str, str]] = []
        self._mappings: dict[str, HostMapping] = {}
        # The engine, or the one connection of its database; and the schema.
        self._last: tuple[Any, str | None] | None = None
        self.add_host(_FIRST_HOST)

    def add_host(self, host: str, mapping: HostMapping | None = None) -> None:
        """As `oldhost-sync migrate` registers it."""
        if mapping is not None:
            self._mappings[host] = mapping
        for event_type, priority_class in DEFAULT_RULES.items():
            self.set_rule(event_type, priority_class, host=host)

    def set_rule(self, event_type: str, priority_class: PriorityClass | str, *, host: str = _FIRST_HOST) -> None:
        """As `oldhost-sync rules set`, from the next change on."""
        self._rules.append((host, event_type, PriorityClass(priority_class).value))

    # ------------------------------------------------------------------------------------------------- what it knows

    def changes(self, connection: object = None, *, host: str = _FIRST_HOST) -> list[StoredChange]:
        """All recorded changes, the oldest first; without those that are scheduled."""
        with self._opened(connection) as statements:
            return _changes(statements, host)

    def scheduled(self, connection: object = None, *, host: str = _FIRST_HOST) -> list[str]:
        """The idempotency keys of the scheduled changes, the oldest first."""
        query = "SELECT idempotency_key FROM scheduled_changes WHERE host = %s ORDER BY id"
        with self._opened(connection) as statements:
            return [] if statements is None else list(statements.exec_driver_sql(query, (host,)).scalars())

    def state(
        self, entity_type: str, entity_id: str, connection: object = None, *, host: str = _FIRST_HOST
    ) -> dict[str, dict[str, Any]]:
        """The entity's newest accepted state: by event type the last payload."""
        shadow = shadow_of((entity_type, entity_id))
        query = f"SELECT state FROM {shadow.table} WHERE {' AND '.join(f'{name} = %s' for name in shadow.key)}"
        with self._opened(connection) as statements:
            if statements is None:
                return {}
            state: dict[str, dict[str, Any]] = json.loads(
                statements.exec_driver_sql(query, shadow.key_of(host, (entity_type, entity_id))).scalar() or "{}"
            )
            return state

    def sync_status(
        self, entity_type: str, entity_id: str, connection: object = None, *, host: str = _FIRST_HOST
    ) -> str | None:
        """PENDING_SYNC, SYNCED or SYNC_FAILED; None for an entity without a change."""
        mine = [each for each in self.changes(connection, host=host) if each.key[:2] == (entity_type, entity_id)]
        outcomes = {each.outcome for each in mine}
        if not mine:
            return None
        return "SYNC_FAILED" if Outcome.DEAD in outcomes else "PENDING_SYNC" if None in outcomes else "SYNCED"

    # -------------------------------------------------------------------------------------------------- how they end

    def settle(self, connection: object = None, *, host: str = _FIRST_HOST) -> None:
        """Give each waiting change its fate at a host that takes everything: APPLIED; of a key's LWW changes only the
        newest, or NO_OP if OldHost has its state. A TXN change waits behind a dead one of its entity.
        """
        with self._opened(connection) as statements:
            changes = _changes(statements, host)
            newest = {each.key: each.change_id for each in changes if each.outcome is None}
            applied = {each.key: each.payload for each in changes if each.outcome == Outcome.APPLIED}
            dead = {each.key[:2] for each in changes if each.outcome == Outcome.DEAD}
            nonce = max((each.nonce or 0 for each in changes), default=0)
            for each in changes:
                is_lww = each.priority_class == PriorityClass.LWW
                if each.outcome is not None or (each.priority_class == PriorityClass.TXN and each.key[:2] in dead):
                    continue
                if is_lww and newest[each.key] != each.change_id:
                    _end(statements, each, Outcome.SUPERSEDED, superseded_by=newest[each.key])
                elif is_lww and applied.get(each.key) == each.payload:
                    _end(statements, each, Outcome.NO_OP)
                else:
                    nonce += 1
                    applied[each.key] = each.payload
                    _end(statements, each, Outcome.APPLIED, nonce=nonce)

    def reject(self, idempotency_key: str, reason: str, connection: object = None, *, host: str = _FIRST_HOST) -> None:
        """OldHost rejects a waiting change: it is a dead letter. Raises LookupError if there is none with that key."""
        with self._opened(connection) as statements:
            changes = _changes(statements, host)
            nonce = max((each.nonce or 0 for each in changes), default=0) + 1
            _end(statements, _waiting(changes, idempotency_key), Outcome.DEAD, nonce=nonce, error=reason)

    def withdraw(self, idempotency_key: str, connection: object = None, *, host: str = _FIRST_HOST) -> None:
        """An operator takes a waiting change back: all is as if it had never come. Raises LookupError, too."""
        with self._opened(connection) as statements:
            changes = _changes(statements, host)
            taken = _waiting(changes, idempotency_key)
            _end(statements, taken, Outcome.WITHDRAWN)
            left = [each for each in changes if each != taken and each.outcome != Outcome.WITHDRAWN]
            _show_newest(statements, host, taken.key, left)

    def transport(self) -> httpx.MockTransport:
        """For a `SyncClient` or an `AsyncSyncClient`, as its `transport`: it tells the fates of recorded changes."""
        import httpx

        def answer(request: httpx.Request) -> httpx.Response:
            key = unquote(request.url.path.rpartition("/changes/")[2])
            change = next((each for each in self.changes() if each.idempotency_key == key), None)
            if change is None:
                return httpx.Response(404, json={"detail": f"There is no change with the key {key}.", "action": ""})
            told = {name: getattr(change, name) for name in _TOLD}
            return httpx.Response(200, json={**told, "state": change.outcome or WAITING})

        return httpx.MockTransport(answer)

    # --------------------------------------------------------------------------------------------------- connections

    @contextmanager
    def statements_of(self, connection: object, schema: str | None) -> Iterator[Statements]:
        """In place of the one of `callers_connection`; connections to MariaDB stay its."""
        with callers_connection.statements_of(connection, None) as given:
            if isinstance(given, Connection):
                driver: Any = given.connection.driver_connection
                place, again = "?", driver if isinstance(given.engine.pool, _SHARED) else given.engine
            else:
                driver = getattr(connection, "connection", connection)
                place, again = "%s", connection
            is_ours = type(driver).__module__.partition(".")[0] in _DRIVERS
            if is_ours:
                self._last = again, schema
                autocommit = not driver.in_transaction and (
                    driver.isolation_level is None or getattr(driver, "autocommit", None) is True
                )
                statements = SqliteStatements(given.exec_driver_sql, place, schema, autocommit=autocommit)
                self._make_tables(statements, schema)
                try:
                    yield statements
                finally:
                    if autocommit and driver.in_transaction:  # a savepoint has begun it
                        given.exec_driver_sql("ROLLBACK")
        if not is_ours:
            with callers_connection.statements_of(connection, schema) as others:
                yield others

    @contextmanager
    def _opened(self, connection: object) -> Iterator[Statements | None]:
        """None: nothing was recorded yet."""
        if connection is None and self._last is None:
            yield None
            return
        again, schema = (None, None) if self._last is None else self._last
        if connection is None and isinstance(again, Engine):
            with again.begin() as made, self.statements_of(made, schema) as statements:
                yield statements
            return
        used: Any = again if connection is None else connection
        with self.statements_of(used, schema) as statements:
            # What the application has begun is its own to commit.
            driver: Any = getattr(used, "connection", used)
            begun = connection is not None or driver.in_transaction
            yield statements
            if not begun and driver.in_transaction:
                driver.commit()

    def _make_tables(self, statements: SqliteStatements, schema: str | None) -> None:
        def named(table: str) -> str:
            return table if schema is None else f"`{schema}.{table}`"

        run, mark, present = statements.exec_driver_sql, named(_MARK), f"{len(self._rules)} {self._id}"
        query = "SELECT 1 FROM sqlite_master WHERE name = %s"
        found = run(query, (mark.strip("`"),)).first() and run(f"SELECT present FROM {mark}").scalar()
        if found == present:
            return
        if not found or not found.endswith(self._id):
            for table in TABLES:
                run(f"DROP TABLE IF EXISTS {named(table.name)}")
                run(create(table).replace(f"TABLE {table.name}", f"TABLE {named(table.name)}", 1))
        for rule in self._rules:
            run("INSERT OR REPLACE INTO event_rules (host, event_type, priority_class) VALUES (%s, %s, %s)", rule)
        for host, mapping in self._mappings.items():
            run(_MAP, (host, mapping.label, to_text(mapping)))
        run(f"DROP TABLE IF EXISTS {mark}")
        run(f"CREATE TABLE {mark} AS SELECT %s AS present", (present,))


def _changes(statements: Statements | None, host: str) -> list[StoredChange]:
    rows = [] if statements is None else statements.exec_driver_sql(_CHANGES, (host,)).all()
    return [StoredChange(**row._asdict() | {"payload": json.loads(row.payload)}) for row in rows]


def _waiting(changes: list[StoredChange], idempotency_key: str) -> StoredChange:
    for each in changes:
        if each.idempotency_key == idempotency_key and each.outcome is None:
            return each
    raise LookupError(f"no change waits that has the key {idempotency_key}")


def _show_newest(
    statements: Statements | None, host: str, key: tuple[str, str, str], changes: list[StoredChange]
) -> None:
    """The state that is shown of a key is the newest of `changes`."""
    assert statements is not None
    entity_type, entity_id, event_type = key
    newest = max((each.change_id for each in changes if each.key[:2] == (entity_type, entity_id)), default=None)
    clear_shadow(statements, host, (entity_type, entity_id), event_type, newest)
    shown = next((each for each in reversed(changes) if each.key == key), None)
    if shown is not None and newest is not None:
        again = accept(host, *key, shown.payload, shown.idempotency_key, None, None, shown.source)
        write_shadow(statements, again, newest)


def _end(
    statements: Statements | None,
    change: StoredChange,
    outcome: Outcome,
    *,
    nonce: int | None = None,
    superseded_by: int | None = None,
    error: str | None = None,
) -> None:
    assert statements is not None
    statements.exec_driver_sql(_END, (outcome.value, nonce, superseded_by, error, change.change_id))
