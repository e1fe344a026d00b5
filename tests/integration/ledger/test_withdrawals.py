"""Withdrawals on a real database: against reservations at the same moment, against locks of others, with a process that
is killed between two steps, and thousands at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial

import pytest

from oldhost_sync.oldhost.ledger import Reserved
from oldhost_sync.policy.changes import CHANGE_ID_MAX
from oldhost_sync.store.intake import withdrawal
from oldhost_sync.store.intake.withdrawal import WithdrawalFilter, begin_withdrawal, preview
from oldhost_sync.store.transactions import run_in_transaction
from tests.conformance.ledger_world import applied
from tests.conformance.maria_world import ADA, HOST, MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.faults.product import ROOT
from tests.integration.ledger.test_foreign_locks import OF_UNIT, held, write_fates

pytestmark = pytest.mark.mariadb

STATUS = "unit_status_changed"
ROUNDS, UNITS = 15, 8


def withdrawn(world: MariaWorld) -> list[int]:
    return [row[0] for row in world.read("SELECT id FROM outbox_events WHERE outcome = 'WITHDRAWN' ORDER BY id")]


def test_a_change_is_reserved_or_withdrawn_and_never_both(world: MariaWorld, epoch: int) -> None:
    """At the same moment, again and again; what is reserved is then applied."""
    for number in range(ROUNDS):
        ids = [world.record(f"u{unit}", payload={"n": number}) for unit in range(UNITS)]
        start = threading.Barrier(2, timeout=30)
        reserved: list[Reserved] = []

        def reserve(ids: list[int] = ids, start: threading.Barrier = start, bound: list[Reserved] = reserved) -> None:
            start.wait()
            for place in range(0, UNITS, 2):
                entries = world.ledger.reserve(epoch, ids[place : place + 2])
                bound += [entry for entry in entries if isinstance(entry, Reserved)]

        other = threading.Thread(target=reserve)
        other.start()
        start.wait()
        done = world.withdraw()
        other.join(60)
        before = None
        for operation in reserved:
            world.ledger.advance(epoch, before, operation)
            before = applied(operation)
        world.ledger.advance(epoch, before, None)
        write_fates(world)
        bound = {operation.change_id for operation in reserved}
        fates = {change_id: world.outcome(change_id)[0] for change_id in ids}
        assert {each for each in ids if fates[each] == "WITHDRAWN"} == set(ids) - bound - {
            each for each in ids if fates[each] is None
        }
        assert all(fates[each] == "APPLIED" for each in bound)
        assert done.withdrawn + len(bound) + done.locked == UNITS
        world.withdraw()
    assert world.books().balance


def test_recording_goes_on_while_changes_are_withdrawn(world: MariaWorld) -> None:
    """Both lock units, in the same order; each unit's shadow ends as its newest change that was not withdrawn."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set() and number < 200:
            number += 1
            world.record(f"u{number % 5}", STATUS, {"status": f"s{number}"})

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(15):
        world.withdraw(event_type=STATUS)
    stop.set()
    writer.join(60)
    newest = dict(
        world.read(
            "SELECT entity_id, JSON_VALUE(payload, '$.status') FROM outbox_events WHERE id IN "
            "(SELECT MAX(id) FROM outbox_events WHERE outcome IS NULL GROUP BY entity_id)"
        )
    )
    assert dict(world.read("SELECT id, status FROM units WHERE status IS NOT NULL")) == newest


@pytest.mark.parametrize(
    "what",
    [
        "SELECT id FROM units WHERE host = 'oldhost' AND id = 'u1' FOR UPDATE",
        f"SELECT id FROM outbox_events WHERE {OF_UNIT} FOR UPDATE",
    ],
)
def test_what_an_application_has_locked_is_left_out_and_nobody_waits(
    world: MariaWorld, epoch: int, mariadb_server: PrivateMariaDB, what: str
) -> None:
    mine, other = world.record("u1"), world.record("u2")
    with held(world, what), mariadb_server.nobody_waits():
        done = world.withdraw()
    assert (done.withdrawn, done.locked) == (1, 1)
    assert [world.outcome(each)[0] for each in (mine, other)] == [None, "WITHDRAWN"]
    assert world.withdraw().withdrawn == 1


def test_a_fate_that_waits_for_its_row_is_kept(world: MariaWorld, epoch: int) -> None:
    """OldHost has the change, and an application has its row locked: the fate is in `pending_fates` only."""
    mine = world.record("u1")
    (operation,) = [entry for entry in world.ledger.reserve(epoch, [mine]) if isinstance(entry, Reserved)]
    world.ledger.advance(epoch, None, operation)
    with held(world, f"SELECT id FROM outbox_events WHERE id = {mine} FOR UPDATE"):
        world.ledger.advance(epoch, applied(operation), None)
    world.execute("DELETE FROM nonce_requests WHERE change_id = %s", mine)  # so that only the pending fate says it
    assert world.withdraw().withdrawn == 0
    assert write_fates(world) == 1
    assert world.outcome(mine)[0] == "APPLIED"


def test_a_step_that_fails_leaves_nothing(world: MariaWorld, epoch: int) -> None:
    """Fates, shadow and audit are one transaction."""
    mine = world.record("u1", STATUS, {"status": "Clean"})
    act = run_in_transaction(
        world.engine,
        partial(begin_withdrawal, host=HOST, wanted=WithdrawalFilter(), up_to=mine, operator=ADA, reason="r"),
    )
    with world.engine.connect() as connection:
        assert act.step(connection).change_ids == [mine]
        connection.rollback()
    assert world.outcome(mine) == (None, None)
    assert world.shadow("u1") == {STATUS: {"status": "Clean"}}
    assert world.read("SELECT JSON_VALUE(detail, '$.withdrawn') FROM operator_audit") == [("0",)]


_KILLED = """
import sys
from functools import partial
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.store.intake import withdrawal
from oldhost_sync.store.intake.withdrawal import WithdrawalFilter, begin_withdrawal
from oldhost_sync.policy.rules.operator_act import at_the_terminal
withdrawal.AT_ONCE = 5
engine = create_engine(sys.argv[1])
begin = partial(begin_withdrawal, host="oldhost", wanted=WithdrawalFilter(event_type="booking_created"),
                up_to=10**9, operator=at_the_terminal("ada"), reason="r")
act = run_in_transaction(engine, begin)
while not act.done:
    act.took(run_in_transaction(engine, act.step))
    print(act.withdrawn, flush=True)
"""


def test_a_process_that_is_killed_leaves_whole_steps_and_the_next_goes_on(world: MariaWorld) -> None:
    for number in range(17):
        world.record(f"u{number}")
    url = world.engine.url.render_as_string(hide_password=False)
    process = subprocess.Popen([sys.executable, "-c", _KILLED, url], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "5\n"
    process.kill()
    process.wait(30)
    process.stdout.close()
    gone = withdrawn(world)
    assert len(gone) in {5, 10, 15, 17}
    assert int(world.read("SELECT JSON_VALUE(detail, '$.withdrawn') FROM operator_audit")[0][0]) == len(gone)
    assert world.withdraw().withdrawn == 17 - len(gone)


def test_between_two_steps_the_writer_reserves(world: MariaWorld, epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are withdrawn, no transaction holds the ledger's row for more than one bounded step."""
    monkeypatch.setattr(withdrawal, "AT_ONCE", 5)
    for number in range(11):
        world.record(f"u{number}", STATUS, {"status": "Clean"})
    kept = [world.record(f"k{number}") for number in range(3)]
    wanted = WithdrawalFilter(event_type=STATUS)
    begin = partial(begin_withdrawal, host=HOST, wanted=wanted, up_to=CHANGE_ID_MAX, operator=ADA, reason="r")
    act = run_in_transaction(world.engine, begin)
    sizes = []
    for change_id in kept:
        step = run_in_transaction(world.engine, act.step)
        act.took(step)
        sizes.append(len(step.change_ids))
        assert isinstance(world.ledger.reserve(epoch, [change_id])[0], Reserved)
    assert sizes == [5, 5, 1]
    assert act.done


def test_the_preview_locks_nothing(world: MariaWorld, epoch: int, mariadb_server: PrivateMariaDB) -> None:
    world.record("u1", STATUS, {"status": "Clean"})
    lock = "SELECT id FROM outbox_events FOR UPDATE"
    with held(world, lock, "SELECT * FROM nonce_ledger FOR UPDATE"), mariadb_server.nobody_waits():
        seen = run_in_transaction(world.engine, lambda connection: preview(connection, HOST, WithdrawalFilter()))
    assert (seen.changes, seen.shown_none, seen.operations) == (1, 1, 1)
