"""The input, the same for everybody: the brief's mix, a backlog put straight into the outbox, and the peak half hour.

Payloads never repeat for a key, so that no system is helped by no-ops and the brief's arithmetic holds: 8,000 LWW changes
on 2,500 units, 1,800 TXN and 200 EMERGENCY.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Engine

from oldhost_sync.policy.changes import PriorityClass

EVENTS = {
    PriorityClass.LWW: "unit_status_changed",
    PriorityClass.TXN: "booking_created",
    PriorityClass.EMERGENCY: "guest_locked_out",
}
STATUSES = ("Clean", "Dirty", "Occupied", "Inspected")
ROWS_PER_INSERT = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """One change to be accepted `at_s` seconds after the start."""

    at_s: float
    unit: str
    priority_class: PriorityClass
    payload: dict[str, str | int]

    @property
    def event_type(self) -> str:
        return EVENTS[self.priority_class]


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak of the brief, or the same compressed: `changes` in `seconds` on `units`, 80 % LWW, 18 % TXN, 2 % EMERGENCY."""

    changes: int = 10_000
    units: int = 2_500
    seconds: float = 1_800.0
    latency_ms: float = 400.0
    debounce_s: float = 120.0
    max_wait_s: float = 600.0
    seed: int = 7

    def compressed(self, size: int, latency: int) -> Peak:
        """1/`size` of the changes on 1/`size` of the units at 1/`latency` of the latency: all spans shrink by both."""
        return Peak(
            self.changes // size,
            self.units // size,
            self.seconds / size / latency,
            self.latency_ms / latency,
            self.debounce_s / size / latency,
            self.max_wait_s / size / latency,
            self.seed,
        )

    def input(self) -> list[Change]:
        chance = random.Random(self.seed)
        emergencies, txns = self.changes * 2 // 100, self.changes * 18 // 100
        classes = (
            [PriorityClass.EMERGENCY] * emergencies
            + [PriorityClass.TXN] * txns
            + [PriorityClass.LWW] * (self.changes - emergencies - txns)
        )
        chance.shuffle(classes)
        times = sorted(chance.random() * self.seconds for _ in classes)
        # Every unit at least once among the LWW changes, as the brief's arithmetic has it.
        order = [number % self.units for number in range(self.changes)]
        chance.shuffle(order)
        return [
            Change(at_s, f"u-{unit:05}", each, payload_of(each, number))
            for number, (at_s, unit, each) in enumerate(zip(times, order, classes, strict=True))
        ]


def payload_of(priority_class: PriorityClass, number: int) -> dict[str, str | int]:
    if priority_class is PriorityClass.LWW:
        return {"status": STATUSES[number % len(STATUSES)], "revision": number}
    return {"guest": f"g-{number}", "revision": number}


def backlog(count: int, *, units: int | None = None, only: PriorityClass | None = None, seed: int = 3) -> list[Change]:
    """`count` changes that wait already, in the brief's mix unless `only` one class; each of its own unit by default."""
    chance = random.Random(seed)
    classes = [PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY]
    return [
        Change(0.0, f"u-{number % (units or count):05}", each, payload_of(each, number))
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
            "INSERT INTO units (host, id, state, sync_status, newest_change_id) "
            "SELECT host, entity_id, '{}', 'PENDING_SYNC', MAX(id) FROM outbox_events WHERE host = %s AND id > %s "
            "GROUP BY host, entity_id ON DUPLICATE KEY UPDATE newest_change_id = VALUES(newest_change_id)",
            (host, first),
        )
        found = connection.exec_driver_sql(
            "SELECT id FROM outbox_events WHERE host = %s AND id > %s ORDER BY id", (host, first)
        )
        return list(found.scalars())


def _slices(items: Sequence[Change], size: int) -> Iterable[Sequence[Change]]:
    return (items[start : start + size] for start in range(0, len(items), size))
