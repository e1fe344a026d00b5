"""What only a real database can show: races with recording, lost commits, repeated decisions, hosts
beside one another."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.drivers.events import Applied, Rejected
from oldhost_sync.oldhost.errors import Fenced, LedgerUnavailable
from oldhost_sync.oldhost.ledger import Answered, Count, Evidence, Reserved
from oldhost_sync.policy.rules.operator_act import OperatorAct
from oldhost_sync.store.errors import TransactionContended
from oldhost_sync.store.intake.change_recorder import record_change
from oldhost_sync.store.ledger.maria_ledger import MariaLedger
from oldhost_sync.store.ledger.operator_commands import decide
from oldhost_sync.store.outbox.pending_fates import write_pending_fates
from oldhost_sync.store.transactions import run_in_transaction
from tests.conformance.maria_world import HOST, MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import LOCK_WAITS, register, wait_until

pytestmark = pytest.mark.mariadb


def first_epoch(world: MariaWorld) -> int:
    epoch = world.ledger.take_over("test").epoch
    world.ledger.adopt_first(epoch, 1)
    return epoch


def reserve(world: MariaWorld, epoch: int, *ids: int) -> list[Reserved]:
    return [entry for entry in world.ledger.reserve(epoch, ids) if isinstance(entry, Reserved)]


def applied(operation: Reserved) -> Answered:
    return Answered(operation, Applied(operation.nonce + 1))


def test_trap_10_a_change_committed_while_its_units_older_one_is_recorded_keeps_the_unit_pending(
    world: MariaWorld,
) -> None:
    """The recording transaction holds the unit's row all the while; the answer's does not wait for it."""
    epoch = first_epoch(world)
    (operation,) = reserve(world, epoch, world.record("u1", "unit_status_changed", {"status": "Dirty"}))
    world.ledger.advance(epoch, None, operation)
    with world.engine.connect() as connection:
        record_change(
            connection,
            host=HOST,
            entity_type="unit",
            entity_id="u1",
            event_type="unit_status_changed",
            payload={"status": "Clean"},
        )
        world.ledger.advance(epoch, applied(operation), None)
        assert world.outcome(operation.change_id) == ("APPLIED", 1)
        connection.commit()
    assert world.sync_status("u1") == "PENDING_SYNC"


def wait_until_somebody_waits_for_a_lock(world: MariaWorld) -> None:
    for _ in range(20):
        if world.read(LOCK_WAITS):
            return
        threading.Event().wait(0.12)  # the server looks anew only when nobody has asked for 0.1 s
    raise AssertionError("nobody waits")


def test_recording_goes_on_while_answers_are_recorded(world: MariaWorld) -> None:
    """Both write the same units; deadlocks are repeated, and each unit ends as its newest change does (I7)."""
    epoch = first_epoch(world)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            world.record(f"u{number % 3}", "unit_status_changed", {"status": str(number)})

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(60):
            send_newest(world, epoch)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    send_newest(world, epoch)
    assert [world.sync_status(f"u{number}") for number in range(3)] == ["SYNCED"] * 3
    run_in_transaction(world.engine, lambda connection: write_pending_fates(connection, HOST, 1000))
    assert world.read("SELECT COUNT(*) FROM outbox_events WHERE outcome IS NULL") == [(0,)]


def send_newest(world: MariaWorld, epoch: int) -> None:
    ids = [
        change_id
        for (change_id,) in world.read(
            "SELECT MAX(id) FROM outbox_events WHERE processed_at IS NULL GROUP BY entity_id ORDER BY 1"
        )
    ]
    before: Answered | None = None
    for operation in reserve(world, epoch, *ids):
        world.ledger.advance(epoch, before, operation)
        before = applied(operation)
    world.ledger.advance(epoch, before, None)


def test_of_two_takeovers_at_once_one_is_fenced(world: MariaWorld) -> None:
    first_epoch(world)
    epochs: list[int] = []
    threads = [threading.Thread(target=lambda: epochs.append(world.ledger.take_over("x").epoch)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(epochs) == list(range(2, 10))
    with pytest.raises(Fenced):
        world.ledger.reserve(8, [world.record()])


def test_a_decision_that_is_repeated_after_a_lost_answer_is_found_done(world: MariaWorld) -> None:
    epoch = first_epoch(world)
    (operation,) = reserve(world, epoch, world.record())
    world.ledger.advance(epoch, None, operation)
    world.ledger.advance(epoch, Answered(operation, Rejected("no", consumed=True)), None)
    for _ in range(2):
        assert world.decide("retry", change_id=operation.change_id, decision_id="run/7") == ""
    assert world.read("SELECT COUNT(*) FROM operator_audit") == [(1,)]
    assert "not a dead letter" in world.decide("retry", change_id=operation.change_id, decision_id="run/8")


def test_a_retry_that_is_repeated_after_another_rejection_says_nothing_of_what_is_held(world: MariaWorld) -> None:
    """Its first answer was lost. The letter is dead again, so what it holds must not be sent."""
    epoch = first_epoch(world)
    (operation,) = reserve(world, epoch, world.record())
    for nonce in (1, 2):
        world.ledger.advance(epoch, None, replace(operation, nonce=nonce))
        rejected = Answered(replace(operation, nonce=nonce), Rejected("no", consumed=True))
        world.ledger.advance(epoch, rejected, None)
        if nonce == 1:
            assert world.decide("retry", change_id=operation.change_id, decision_id="run/7") == ""
            reserve(world, epoch, operation.change_id)
    act = OperatorAct(HOST, "retry", "ada", "a test", operation.change_id, decision_id="run/7")
    recorded = run_in_transaction(world.engine, lambda connection: decide(connection, act, Count(3)))
    assert (recorded.change, recorded.entity_key) == (None, None)


def test_a_pause_that_is_repeated_pauses_nobody_once_a_later_act_has_ended_it(world: MariaWorld) -> None:
    """A run that was reset works off again what its predecessor left it, hours later."""
    first_epoch(world)
    for _ in range(2):
        assert world.decide("pause", decision_id="run/1") == ""
    assert world.decide("resume", decision_id="run/2") == ""
    assert "a later act has undone it" in world.decide("pause", decision_id="run/1")
    assert world.decide("resume", decision_id="run/2") == ""


def test_hosts_beside_one_another_do_not_touch(world: MariaWorld) -> None:
    register(world.engine, "annex")
    other = MariaLedger(world.engine, "annex", timedelta(seconds=10))
    epoch, annex = first_epoch(world), other.take_over("test").epoch
    other.adopt_first(annex, 700)
    with world.engine.begin() as connection:
        recorded = record_change(
            connection, host="annex", entity_type="unit", entity_id="u1", event_type="checked_in", payload={}
        )
    assert recorded.change_id is not None
    (there,) = [one for one in other.reserve(annex, [recorded.change_id]) if isinstance(one, Reserved)]
    (here,) = reserve(world, epoch, world.record("u1", "checked_in"))
    assert (there.nonce, here.nonce) == (700, 1)
    assert world.ledger.reserve(epoch, [recorded.change_id])[0] != there, "another host's change is none of ours"
    world.ledger.take_over("next")
    other.advance(annex, None, there)


def test_a_killed_connection_leaves_nothing_half_done(world: MariaWorld, mariadb_server: PrivateMariaDB) -> None:
    epoch = first_epoch(world)
    ids = [world.record(f"u{number}") for number in range(3)]
    kill_connections(mariadb_server)
    with pytest.raises(LedgerUnavailable):
        reserve_with_the_connection_killed_inside(world, mariadb_server, epoch, ids)
    assert world.read("SELECT COUNT(*) FROM nonce_requests") == [(0,)]
    assert world.counts() == (0, 1)
    assert [one.nonce for one in reserve(world, epoch, *ids)] == [1, 2, 3]


def reserve_with_the_connection_killed_inside(
    world: MariaWorld, mariadb_server: PrivateMariaDB, epoch: int, ids: list[int]
) -> None:
    with world.engine.connect() as holder:
        holder.exec_driver_sql("SELECT * FROM nonce_ledger FOR UPDATE")
        (mine,) = holder.exec_driver_sql("SELECT CONNECTION_ID()").one()
        killer = threading.Thread(target=lambda: kill_waiting(world, mariadb_server, mine))
        killer.start()
        try:
            world.ledger.reserve(epoch, ids)
        finally:
            killer.join()


def kill_waiting(world: MariaWorld, mariadb_server: PrivateMariaDB, spared: int) -> None:
    wait_until_somebody_waits_for_a_lock(world)
    kill_connections(mariadb_server, spared=spared, waiting_only=True)


def kill_connections(mariadb_server: PrivateMariaDB, *, spared: int = 0, waiting_only: bool = False) -> None:
    """Returns when they are closed."""
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        which = "AND info LIKE '%%nonce_ledger%%'" if waiting_only else ""
        found = (
            "SELECT id FROM information_schema.processlist WHERE id NOT IN (CONNECTION_ID(), %s) "
            f"AND user = 'root' AND command <> 'Daemon' {which}"
        )
        cursor.execute(found, (spared,))
        for (one,) in cursor.fetchall():
            cursor.execute("KILL %s", (one,))
        wait_until(lambda: cursor.execute(found, (spared,)) == 0, "the connections to be closed")


def test_the_server_killed_and_restarted_keeps_what_was_committed(
    mariadb_server: PrivateMariaDB, world: MariaWorld
) -> None:
    epoch = first_epoch(world)
    first, second = reserve(world, epoch, world.record("u1"), world.record("u2"))
    world.ledger.advance(epoch, None, first)
    world.ledger.advance(epoch, applied(first), second)
    mariadb_server.kill()
    with pytest.raises(LedgerUnavailable):
        world.ledger.advance(epoch, applied(second), None)
    mariadb_server.start()
    taken = world.ledger.take_over("after")
    assert [one.nonce for one in taken.in_doubt] == [2]
    found = world.ledger.reconcile(taken.epoch, Evidence(3))
    assert [fate.outcome for fate in found.fates] == ["APPLIED"]
    assert world.counts() == (2, 3)


def test_statements_use_indexes_however_long_the_history(world: MariaWorld, mariadb_server: PrivateMariaDB) -> None:
    """The cost of a reservation and of an answer does not grow with the rows that are done."""
    epoch = first_epoch(world)
    engine: Engine = world.engine
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
            "payload, priority_class, processed_at, outcome, nonce) SELECT 'oldhost', CONCAT('old-', seq), '', 'unit', "
            "CONCAT('u', MOD(seq, 500)), 'checked_in', '{}', 'TXN', UTC_TIMESTAMP(6), 'APPLIED', NULL FROM "
            "seq_1_to_20000"
        )
    examined = []
    for number in range(2):
        before = rows_read(world)
        (operation,) = reserve(world, epoch, world.record(f"new{number}", "unit_status_changed", {"n": number}))
        world.ledger.advance(epoch, None, operation)
        world.ledger.advance(epoch, applied(operation), None)
        examined.append(rows_read(world) - before)
    assert max(examined) < 200, examined


def rows_read(world: MariaWorld) -> int:
    """Rows that the server's storage engines were asked for, by this test's database or any other."""
    rows = world.read(
        "SELECT SUM(variable_value) FROM information_schema.global_status WHERE variable_name IN "
        "('HANDLER_READ_NEXT', 'HANDLER_READ_RND_NEXT', 'HANDLER_READ_KEY', 'HANDLER_READ_PREV')"
    )
    return int(rows[0][0])


def test_a_decision_gives_the_ledger_back_while_somebody_holds_the_dead_letters_row(
    world: MariaWorld, mariadb_server: PrivateMariaDB
) -> None:
    """Whatever an application has locked: an operation of another entity is reserved at once."""
    epoch = first_epoch(world)
    dead, other = world.record("u1"), world.record("u2")
    (operation,) = reserve(world, epoch, dead)
    world.ledger.advance(epoch, None, operation)
    world.ledger.advance(epoch, Answered(operation, Rejected("no", consumed=True)), None)
    with world.engine.connect() as holder:
        holder.exec_driver_sql("SELECT id FROM outbox_events WHERE id = %s FOR UPDATE", (dead,))
        with mariadb_server.nobody_waits(), pytest.raises(TransactionContended):
            world.decide("discard", change_id=dead)
        assert reserve(world, epoch, other)
    assert world.decide("discard", change_id=dead) == ""
