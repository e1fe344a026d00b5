"""An application holds rows for long: no operation waits for it, and the books come right when it lets go."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oldhost_sync.drivers.events import Rejected
from oldhost_sync.oldhost.ledger import Answered, Evidence, Reserved
from oldhost_sync.policy.changes import ChangeResult
from oldhost_sync.store.intake.change_recorder import record_change
from oldhost_sync.store.outbox.books import count_books
from oldhost_sync.store.outbox.pending_fates import write_pending_fates
from oldhost_sync.store.transactions import run_in_transaction
from tests.conformance.ledger_world import applied
from tests.conformance.maria_world import HOST, MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB

pytestmark = pytest.mark.mariadb

RANGE = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
OF_UNIT = "host = 'oldhost' AND entity_type = 'unit' AND entity_id = 'u1'"


@contextmanager
def held(world: MariaWorld, *statements: str) -> Iterator[None]:
    """An application's transaction that holds what `statements` lock."""
    application = world.engine.raw_connection()
    try:
        for statement in statements:
            application.cursor().execute(statement)
        yield
    finally:
        application.rollback()
        application.invalidate()  # its isolation level goes with it


OUTSTANDING = "outbox_events FORCE INDEX (ix_outbox_events_outstanding) WHERE host = 'oldhost' AND processed_at IS NULL"
ENDED_TOO = "outbox_events FORCE INDEX (ix_outbox_events_status) WHERE host = 'oldhost'"
HOLDS: dict[str, tuple[str, ...]] = {
    "the unit": ("SELECT id FROM units WHERE id = 'u1' FOR UPDATE",),
    "the unit's outbox rows": (f"SELECT id FROM outbox_events WHERE {OF_UNIT} FOR UPDATE",),
    "the unit's outbox rows, shared": (f"SELECT id FROM outbox_events WHERE {OF_UNIT} LOCK IN SHARE MODE",),
    "all that is outstanding, with the gaps": (RANGE, f"SELECT id FROM {OUTSTANDING} FOR UPDATE"),
    "all that is outstanding and that ended": (RANGE, f"SELECT id FROM {ENDED_TOO} FOR UPDATE"),
    "the whole outbox": (RANGE, "SELECT id FROM outbox_events WHERE source = 'nobody' FOR UPDATE"),
    "every unit": (RANGE, "SELECT id FROM units FOR UPDATE"),
}


def reserved(world: MariaWorld, epoch: int, *ids: int) -> list[Reserved]:
    return [entry for entry in world.ledger.reserve(epoch, ids) if isinstance(entry, Reserved)]


def write_fates(world: MariaWorld) -> int:
    return run_in_transaction(world.engine, lambda connection: write_pending_fates(connection, HOST, 100))


def pending(world: MariaWorld) -> list[Any]:
    return world.read("SELECT change_id, outcome FROM pending_fates ORDER BY change_id")


@pytest.mark.parametrize("what", HOLDS)
def test_no_operation_waits_for_a_row_that_an_application_holds(
    world: MariaWorld, epoch: int, mariadb_server: PrivateMariaDB, what: str
) -> None:
    mine, other, rejected = world.record("u1"), world.record("u2"), world.record("u3")
    operations = reserved(world, epoch, mine, other, rejected)
    with held(world, *HOLDS[what]):
        with mariadb_server.nobody_waits():
            world.ledger.advance(epoch, None, operations[0])
            world.ledger.advance(epoch, applied(operations[0]), operations[1])
            world.ledger.advance(epoch, applied(operations[1]), operations[2])
            world.ledger.advance(epoch, Answered(operations[2], Rejected("no", consumed=True)), None)
        fates = world.ledger.fates([mine, other, rejected])
        with world.engine.connect() as connection:
            counted = count_books(connection, HOST)
        write_fates(world)
    assert fates == [
        ChangeResult(mine, "APPLIED", 501),
        ChangeResult(other, "APPLIED", 502),
        ChangeResult(rejected, "DEAD", 503, "no"),
    ]
    assert (counted.waiting, counted.in_flight, counted.applied, counted.dead) == (0, 0, 2, 1)
    assert counted.balance
    write_fates(world)
    assert pending(world) == []
    assert [world.outcome(one) for one in (mine, other, rejected)] == [
        ("APPLIED", 501),
        ("APPLIED", 502),
        ("DEAD", 503),
    ]


@pytest.mark.parametrize("what", HOLDS)
def test_a_recovery_does_not_wait_for_a_row_that_an_application_holds(
    world: MariaWorld, epoch: int, mariadb_server: PrivateMariaDB, what: str
) -> None:
    operations = reserved(world, epoch, world.record("u1"), world.record("u2"))
    world.ledger.advance(epoch, None, operations[0])
    with held(world, *HOLDS[what]), mariadb_server.nobody_waits():
        epoch = world.ledger.take_over("next").epoch
        found = world.ledger.reconcile(epoch, Evidence(502)).fates
        (other,) = reserved(world, epoch, operations[1].change_id)
        world.ledger.advance(epoch, None, other)
        world.ledger.advance(epoch, applied(other), None)
    assert found == [ChangeResult(operations[0].change_id, "APPLIED", 501, unproven=True)]
    write_fates(world)
    assert world.outcome(operations[0].change_id) == ("APPLIED", 501)
    assert world.outcome(other.change_id) == ("APPLIED", 502)


def test_a_repeated_write_in_an_open_transaction_holds_nobody_up(
    world: MariaWorld, epoch: int, mariadb_server: PrivateMariaDB
) -> None:
    change_id = world.record("u1", key="k-1")
    (operation,) = reserved(world, epoch, change_id)
    world.ledger.advance(epoch, None, operation)
    with world.engine.connect() as application:
        again = record_change(
            application, host=HOST, entity_type="unit", entity_id="u1", event_type="booking_created", payload={},
            idempotency_key="k-1",
        )  # fmt: skip
        with mariadb_server.nobody_waits():
            world.ledger.advance(epoch, applied(operation), None)
        assert again.duplicate
        application.commit()
    assert world.ledger.fates([change_id]) == [ChangeResult(change_id, "APPLIED", 501)]
    write_fates(world)
    assert world.outcome(change_id) == ("APPLIED", 501)


def test_an_older_change_whose_row_is_held_is_superseded_without_waiting(
    world: MariaWorld, epoch: int, mariadb_server: PrivateMariaDB
) -> None:
    older, between, newest = (
        world.record("u1", "unit_status_changed", {"status": status}) for status in ("Dirty", "Inspected", "Clean")
    )
    (operation,) = reserved(world, epoch, newest)
    world.ledger.advance(epoch, None, operation)
    with held(world, f"SELECT id FROM outbox_events WHERE id = {between} FOR UPDATE"):
        with mariadb_server.nobody_waits():
            world.ledger.advance(epoch, applied(operation), None)
        assert [fate.outcome for fate in world.ledger.fates([older, between, newest])] == [
            "SUPERSEDED",
            "SUPERSEDED",
            "APPLIED",
        ]
        assert [
            entry.outcome for entry in world.ledger.reserve(epoch, [between]) if isinstance(entry, ChangeResult)
        ] == ["SUPERSEDED"]
        assert world.outcome(older) == ("SUPERSEDED", None)  # its row is free
        assert write_fates(world) == 0
    assert write_fates(world) == 1
    assert world.read("SELECT id, superseded_by FROM outbox_events WHERE outcome = 'SUPERSEDED'") == [
        (older, newest),
        (between, newest),
    ]


def test_a_pending_fate_is_the_changes_only_one(world: MariaWorld, epoch: int) -> None:
    """A newer change that is applied meanwhile does not make a superseded one of it."""
    first = world.record("u1", "unit_status_changed", {"status": "Dirty"})
    (operation,) = reserved(world, epoch, first)
    world.ledger.advance(epoch, None, operation)
    with held(world, f"SELECT id FROM outbox_events WHERE id = {first} FOR UPDATE"):
        world.ledger.advance(epoch, applied(operation), None)
    (newer,) = reserved(world, epoch, world.record("u1", "unit_status_changed", {"status": "Clean"}))
    world.ledger.advance(epoch, None, newer)
    world.ledger.advance(epoch, applied(newer), None)
    write_fates(world)
    assert world.outcome(first) == ("APPLIED", 501)


def test_a_dead_letter_whose_fate_is_pending_can_be_decided_on(world: MariaWorld, epoch: int) -> None:
    change_id = world.record("u1")
    with held(world, f"SELECT id FROM outbox_events WHERE id = {change_id} FOR UPDATE"):
        (operation,) = reserved(world, epoch, change_id)
        world.ledger.advance(epoch, None, operation)
        world.ledger.advance(epoch, Answered(operation, Rejected("no", consumed=True)), None)
    assert world.decide("retry", change_id=change_id) == ""
    assert pending(world) == []
    assert world.outcome(change_id) == (None, None)


def test_what_oldhost_lost_waits_again_also_when_its_fate_was_pending(world: MariaWorld, epoch: int) -> None:
    change_id = world.record("u1")
    (operation,) = reserved(world, epoch, change_id)
    world.ledger.advance(epoch, None, operation)
    with held(world, f"SELECT id FROM outbox_events WHERE id = {change_id} FOR UPDATE"):
        world.ledger.advance(epoch, applied(operation), None)
    epoch = world.ledger.take_over("next").epoch
    assert world.ledger.reconcile(epoch, Evidence(501)).halted is not None
    assert world.decide("resolve", mode="resend") == ""
    write_fates(world)
    assert world.outcome(change_id) == (None, None)
    epoch = world.ledger.take_over("next").epoch
    assert [ref.change_id for ref in world.ledger.reconcile(epoch, Evidence(501)).bound] == [change_id]


def test_fates_behind_many_that_are_held_are_written(
    world: MariaWorld, epoch: int, mariadb_server: PrivateMariaDB
) -> None:
    """A thousand rows stay held; what is free is not kept waiting by them."""
    world.execute(
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        "priority_class) SELECT 'oldhost', CONCAT('k', seq), '', 'unit', IF(seq > 1000, 'free', 'u1'), 'e', '{}', "
        "'TXN' "
        "FROM seq_1_to_1001"
    )
    world.execute(
        "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome, nonce) "
        "SELECT host, id, entity_type, entity_id, 'APPLIED', id FROM outbox_events"
    )
    # MariaDB 11 would scan the whole table, and lock the last row, too.
    first = "SELECT id FROM outbox_events FORCE INDEX (PRIMARY) WHERE id <= 1000 FOR UPDATE"
    with held(world, first), mariadb_server.nobody_waits():
        assert write_fates(world) == 1
    assert write_fates(world) == 100


def test_a_fate_whose_row_was_deleted_by_hand_is_forgotten(world: MariaWorld, epoch: int) -> None:
    change_id = world.record("u1")
    with held(world, f"SELECT id FROM outbox_events WHERE id = {change_id} FOR UPDATE"):
        (operation,) = reserved(world, epoch, change_id)
        world.ledger.advance(epoch, None, operation)
        world.ledger.advance(epoch, applied(operation), None)
    world.execute("DELETE FROM outbox_events WHERE id = %s", change_id)
    assert write_fates(world) == 0
    assert pending(world) == []


def test_two_relays_write_each_fate_once(world: MariaWorld, epoch: int) -> None:
    world.execute(
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        "priority_class) SELECT 'oldhost', CONCAT('k', seq), '', 'unit', seq, 'e', '{}', 'TXN' FROM seq_1_to_60"
    )
    world.execute(
        "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome, nonce) "
        "SELECT host, id, entity_type, entity_id, 'APPLIED', id FROM outbox_events"
    )
    written: list[int] = []
    relays = [threading.Thread(target=lambda: written.append(write_fates(world))) for _ in range(2)]
    for relay in relays:
        relay.start()
    for relay in relays:
        relay.join()
    write_fates(world)
    assert pending(world) == []
    assert world.read("SELECT COUNT(*) FROM outbox_events WHERE outcome = 'APPLIED' AND nonce = id") == [(60,)]


def test_who_finds_nothing_pending_waits_for_nothing(
    world: MariaWorld, epoch: int, mariadb_server: PrivateMariaDB
) -> None:
    assert epoch
    everything = held(world, "SELECT * FROM nonce_ledger FOR UPDATE", "SELECT * FROM outbox_events FOR UPDATE")
    with everything, mariadb_server.nobody_waits():
        assert write_fates(world) == 0
