"""The facts that the verdict is based on: from the database, OldHost's admin port, and the applications' receipts."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.engine import Connection, Engine

from oldhost_sync.demo.applications import key_of
from oldhost_sync.planner import Arrival
from oldhost_sync.store.outbox.books import Books, count_books
from oldhost_sync.store.read import entities
from oldhost_sync.store.read.entities import not_synced
from oldhost_sync.store.transactions import run_in_transaction

Record = tuple[str, str, str]  # entity type, entity id, event type
ADMIN_SECONDS_MAX = 10.0
JOURNAL_PAGE = 2_000


@dataclass(frozen=True, slots=True)
class Change:
    """One row of the outbox. Times in seconds since 1970, of the database's clock."""

    change_id: int
    key: str
    priority_class: str
    entity: tuple[str, str]
    accepted_at: float
    processed_at: float | None
    outcome: str | None


@dataclass
class Facts:
    """`shadow` and `records` hold the payload of each entity's event types: ours, and OldHost's."""

    books: Books
    changes: list[Change]
    shadow: dict[Record, Any]
    records: dict[Record, Any]
    journal: list[dict[str, Any]]
    stats: dict[str, Any]
    unsynced: list[str] = field(default_factory=list)


class Admin:
    """The simulator's admin port: its journal and counts, and its faults."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a GET, or to a POST if there is a `body`."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data)  # noqa: S310 - our own http address
        with urllib.request.urlopen(request, timeout=ADMIN_SECONDS_MAX) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found

    def journal(self) -> list[dict[str, Any]]:
        """All entries, in the order in which OldHost made them."""
        entries: list[dict[str, Any]] = []
        while True:
            page = self.ask(f"/journal?since={len(entries)}&limit={JOURNAL_PAGE}")["entries"]
            entries += page
            if len(page) < JOURNAL_PAGE:
                return entries


def gather(engine: Engine, host: str, admin: Admin) -> Facts:
    """All facts, once every change has its fate."""
    facts = run_in_transaction(engine, lambda connection: _from_database(connection, host))
    facts.records = {
        (each["entity_type"], each["entity_id"], each["event_type"]): each["payload"]
        for each in admin.ask("/records")["records"]
    }
    facts.journal = admin.journal()
    facts.stats = admin.ask("/stats")
    return facts


def as_accepted(changes: Sequence[Arrival], accepted: Sequence[Change], started_at: float) -> list[Arrival]:
    """The changes at the times at which they were accepted, which a busy machine makes later. Fewer of them can then be
    merged. One that was not accepted is left out.
    """
    times = {change.key: change.accepted_at for change in accepted}
    came = [
        replace(change, at_ms=max(0, round(1000 * (times[key] - started_at))))
        for change in changes
        if (key := key_of(change)) in times
    ]
    return sorted(came, key=lambda change: change.at_ms)


def books(engine: Engine, host: str) -> Books:
    return run_in_transaction(engine, lambda connection: count_books(connection, host))


def _from_database(connection: Connection, host: str) -> Facts:
    shadow: dict[Record, Any] = {}
    for entity_type, entity_id, state in entities.all_states(connection, host):
        shadow.update({(entity_type, entity_id, event_type): payload for event_type, payload in state.items()})
    unsynced = [f"{kind}/{entity_id} is {status}" for (kind, entity_id), status in not_synced(connection, host).items()]
    return Facts(count_books(connection, host), _changes(connection, host), shadow, {}, [], {}, unsynced)


def _changes(connection: Connection, host: str) -> list[Change]:
    return [
        Change(
            row.id,
            row.idempotency_key,
            row.priority_class,
            (row.entity_type, row.entity_id),
            row.created_at.timestamp(),
            None if row.processed_at is None else row.processed_at.timestamp(),
            row.outcome,
        )
        for row in entities.all_changes(connection, host)
    ]
