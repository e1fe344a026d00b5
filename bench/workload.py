"""The input, the same for everybody: a backlog in the peak's mix, put straight into the outbox.

Payloads never repeat for a key, so that no system is helped by no-ops.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy.engine import Engine

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.intake.change_recorder import RecordedChange, record_change
from oldhost_sync.store.transactions import run_in_transaction

EVENTS = {
    PriorityClass.LWW: "unit_status_changed",
    PriorityClass.TXN: "booking_created",
    PriorityClass.EMERGENCY: "guest_locked_out",
}
STATUSES = ("Clean", "Dirty", "Occupied", "Inspected")
ROWS_PER_INSERT = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a unit."""

    unit: str
    priority_class: PriorityClass
    payload: dict[str, str | int]

    @property
    def event_type(self) -> str:
        return EVENTS[self.priority_class]


def payload_of(priority_class: PriorityClass, number: int) -> dict[str, str | int]:
    if priority_class is PriorityClass.LWW:
        return {"status": STATUSES[number % len(STATUSES)], "revision": number}
    return {"guest": f"g-{number}", "revision": number}


def backlog(count: int, *, units: int | None = None, only: PriorityClass | None = None, seed: int = 3) -> list[Change]:
    """`count` changes that wait already, in the peak's mix unless `only` one class; each of its own unit by default."""
    chance = random.Random(seed)
    classes = [PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY]
    return [
        Change(f"u-{number % (units or count):05}", each, payload_of(each, number))
        for number in range(count)
        for each in [only or chance.choices(classes, (80, 18, 2))[0]]
    ]


def put_into_outbox(
    engine: Engine, host: str, changes: Sequence[Change], *, relayed: bool, aged_seconds: int = 1_000
) -> list[int]:
    """Record a backlog in bulk, as if it had been accepted `aged_seconds` ago; gives the change ids."""
    when = f"UTC_TIMESTAMP(6) - INTERVAL {int(aged_seconds)} SECOND"
    head = (
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        "priority_class, created_at, relayed_at) VALUES "
    )
    row = f"(%s, UUID(), REPEAT('0', 32), 'unit', %s, %s, %s, %s, {when}, {when if relayed else 'NULL'})"
    with engine.begin() as connection:
        first = connection.exec_driver_sql("SELECT COALESCE(MAX(id), 0) FROM outbox_events").scalar_one()
        for some in _slices(changes, ROWS_PER_INSERT):
            values = [
                value
                for each in some
                for value in (host, each.unit, each.event_type, json.dumps(each.payload), each.priority_class.value)
            ]
            connection.exec_driver_sql(head + ", ".join([row] * len(some)), tuple(values))
        connection.exec_driver_sql(
            "INSERT INTO units (host, id, state, newest_change_id) "
            "SELECT host, entity_id, '{}', MAX(id) FROM outbox_events WHERE host = %s AND id > %s "
            "GROUP BY host, entity_id ON DUPLICATE KEY UPDATE newest_change_id = VALUES(newest_change_id)",
            (host, first),
        )
        found = connection.exec_driver_sql(
            "SELECT id FROM outbox_events WHERE host = %s AND id > %s ORDER BY id", (host, first)
        )
        return list(found.scalars())


def record(engine: Engine, host: str, change: Change) -> RecordedChange:
    """Record one change as an application does."""
    return run_in_transaction(
        engine,
        partial(
            record_change,
            host=host,
            entity_type="unit",
            entity_id=change.unit,
            event_type=change.event_type,
            payload=change.payload,
        ),
    )


def emergency(unit: str, number: int) -> Change:
    return Change(unit, PriorityClass.EMERGENCY, payload_of(PriorityClass.EMERGENCY, number))


def _slices(items: Sequence[Change], size: int) -> Iterable[Sequence[Change]]:
    return (items[start : start + size] for start in range(0, len(items), size))
