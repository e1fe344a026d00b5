"""The product's four kinds of transactions, each with what a rival needs to get in its way and how to tell its effect.

Every step returns to the same question: did it happen wholly and once, whatever became of its connection?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.engine import Engine

from oldhost_sync.drivers.events import Applied, Rejected
from oldhost_sync.oldhost.ledger import Answered, Evidence, Reserved
from tests.conformance.maria_world import HOST, MariaWorld
from tests.integration.store.writing import recorded

SETTLE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Transaction:
    """`early`: what it locks first; `late`: what it writes after that, as statements of a rival. `commit`:
    a pattern of the statement that commits it; `within`: of an earlier one.

    `act` runs it, `again` is what the product does after a lost answer, `done` counts its effect (0 or 1).
    """

    early: str
    late: str
    act: Callable[[], Any]
    again: Callable[[], Any]
    done: Callable[[], int]
    within: str | None = None
    commit: str = "^COMMIT"


def make(name: str, hurt: Engine, calm: Engine) -> Transaction:
    """Prepared in the database through `calm`; acts through `hurt`."""
    return {"record_change": _record, "reserve": _reserve, "advance": _advance, "decide": _decide}[name](hurt, calm)


NAMES = ("record_change", "reserve", "advance", "decide")


def _record(hurt: Engine, calm: Engine) -> Transaction:
    recorded(calm, idempotency_key="before")

    def act() -> Any:
        return recorded(hurt, idempotency_key="one", payload={"status": "Dirty"})

    return Transaction(
        early="SELECT id FROM units WHERE id = '101' FOR UPDATE",
        late="INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
        "payload, priority_class) VALUES ('oldhost', 'one', UNHEX(SHA2('x', 256)), 'unit', '7', 'x', '{}', 'TXN')",
        within="INSERT INTO outbox_events",
        act=act,
        again=act,
        done=lambda: (
            _count(calm, "SELECT COUNT(*) FROM outbox_events WHERE idempotency_key = 'one'")
            * _count(
                calm, "SELECT COUNT(*) FROM units WHERE JSON_VALUE(state, '$.unit_status_changed.status') = 'Dirty'"
            )
        ),
    )


def _reserve(hurt: Engine, calm: Engine) -> Transaction:
    world, epoch, change = _opened(calm)
    ledger = MariaWorld(hurt, SETTLE_SECONDS).ledger

    def again() -> Any:
        taken = ledger.take_over("successor")
        ledger.reconcile(taken.epoch, Evidence(1))
        return ledger.reserve(taken.epoch, [change])

    return Transaction(
        early="SELECT epoch FROM nonce_ledger FOR UPDATE",
        late="INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status) "
        "VALUES ('oldhost', 1, 'rival', 0, 0, '', 'RESERVED')",
        act=lambda: ledger.reserve(epoch, [change]),
        again=again,
        done=lambda: (
            _count(world.engine, "SELECT COUNT(*) FROM nonce_requests WHERE nonce = 1 AND status = 'RESERVED'")
            * _count(world.engine, "SELECT COUNT(*) FROM nonce_ledger WHERE next_nonce = 2")
        ),
        commit="INSERT INTO nonce_requests .*; COMMIT; END$",
    )


def _advance(hurt: Engine, calm: Engine) -> Transaction:
    """The answer of nonce 1 is recorded and nonce 2 marked SENT, in one transaction."""
    world, epoch, first = _opened(calm)
    second = world.record("u2")
    one, two = world.ledger.reserve(epoch, [first, second])
    assert isinstance(one, Reserved)
    assert isinstance(two, Reserved)
    world.ledger.advance(epoch, None, one)
    ledger = MariaWorld(hurt, SETTLE_SECONDS).ledger

    def again() -> Any:
        # OldHost has applied nonce 1, and nothing of nonce 2 was written.
        world.age(SETTLE_SECONDS)
        taken = ledger.take_over("successor")
        found = ledger.reconcile(taken.epoch, Evidence(2))
        (entry,) = ledger.reserve(taken.epoch, [second])
        assert found.halted is None
        assert isinstance(entry, Reserved)
        assert entry.nonce == 2
        return ledger.advance(taken.epoch, None, entry)

    return Transaction(
        early="SELECT epoch FROM nonce_ledger FOR UPDATE",
        late="SELECT nonce FROM nonce_requests WHERE nonce = 1 FOR UPDATE",
        act=lambda: ledger.advance(epoch, Answered(one, Applied(2)), two),
        again=again,
        done=lambda: _count(
            world.engine,
            "SELECT COUNT(*) FROM nonce_ledger l JOIN outbox_events o ON o.outcome = 'APPLIED' AND o.nonce = 1 "
            "JOIN nonce_requests a ON a.nonce = 1 AND a.status = 'APPLIED' "
            "JOIN nonce_requests s ON s.nonce = 2 AND s.status = 'SENT' WHERE l.last_applied_nonce = 1",
        ),
        commit="UPDATE nonce_ledger SET last_applied_nonce .*; COMMIT; END$",
    )


def _decide(hurt: Engine, calm: Engine) -> Transaction:
    """An operator retries a dead letter."""
    world, epoch, change = _opened(calm)
    (one,) = world.ledger.reserve(epoch, [change])
    assert isinstance(one, Reserved)
    world.ledger.advance(epoch, None, one)
    world.ledger.advance(epoch, Answered(one, Rejected("no", consumed=True)), None)
    deciding = MariaWorld(hurt, SETTLE_SECONDS)

    def act() -> Any:
        assert deciding.decide("retry", change_id=change, decision_id="run/1") == ""

    return Transaction(
        early="SELECT epoch FROM nonce_ledger FOR UPDATE",
        late=f"SELECT id FROM outbox_events WHERE id = {change} FOR UPDATE",
        within="UPDATE outbox_events SET outcome",
        act=act,
        again=act,
        done=lambda: (
            _count(world.engine, f"SELECT COUNT(*) FROM outbox_events WHERE id = {change} AND outcome IS NULL")
            * _count(world.engine, "SELECT COUNT(*) FROM nonce_requests_archive")
            * _count(world.engine, "SELECT COUNT(*) FROM operator_audit WHERE action = 'retry'")
        ),
    )


def _opened(calm: Engine) -> tuple[MariaWorld, int, int]:
    """A ledger that expects nonce 1, an epoch, and a change that waits."""
    world = MariaWorld(calm, SETTLE_SECONDS)
    taken = world.ledger.take_over("first")
    world.ledger.adopt_first(taken.epoch, 1)
    return world, taken.epoch, world.record("u1")


def _count(engine: Engine, statement: str) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql(statement).scalar_one())


__all__ = ["HOST", "NAMES", "Transaction", "make"]
