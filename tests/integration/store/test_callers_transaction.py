"""A change in an application's own transaction, whatever its isolation level: only changes of the same unit wait."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError

from oldhost_sync import IdempotencyConflict, record_changes, run_in_transaction
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.rules.operator_act import Actor, Channel
from oldhost_sync.store.errors import error_code
from oldhost_sync.store.intake.batch_recorder import ChangesRefused
from oldhost_sync.store.intake.batch_submission import submit_changes
from oldhost_sync.store.intake.change_recorder import record_refused
from oldhost_sync.store.intake.rules import decide_rule
from oldhost_sync.store.intake.schedule import due, record_due
from oldhost_sync.store.intake.validation import accept
from tests.conformance.private_mariadb import PrivateMariaDB, private_mariadb
from tests.integration.store.callers import SESSIONS, Session, application
from tests.integration.store.writing import HOST, change_sql, record, recorded, rows, wait_until, waiting_for_a_lock

pytestmark = [pytest.mark.mariadb, pytest.mark.usefixtures("door")]

LATER = datetime(2100, 1, 1, tzinfo=UTC) - timedelta(days=26_000)
# Before, between and after the keys and units that exist.
PLACES = ("a", "e", "l", "n", "y", "zz")
# The key that a submission got which was refused.
REFUSED = "m-refused"
THREADS, TRANSACTIONS = 4, 75


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[PrivateMariaDB]:
    """With a binary log in MariaDB's default format: a statement then locks as much as without one, or more."""
    with private_mariadb(binlog_format="MIXED") as server:
        yield server


@pytest.fixture(params=SESSIONS, ids=str)
def session(request: pytest.FixtureRequest) -> Session:
    assert isinstance(request.param, Session)
    return request.param


# With SERIALIZABLE and snapshots, the first statement of any kind fixes the view, and MariaDB says 1020.
not_with_both = pytest.mark.parametrize("session", SESSIONS[:-1], ids=str)


@pytest.fixture
def caller(engine: Engine, session: Session) -> Iterator[Engine]:
    with application(engine.url, session) as caller:
        yield caller


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


def existing(engine: Engine) -> None:
    """Units, keys and scheduled changes with gaps between them."""
    for name in ("b", "m", "z"):
        recorded(engine, entity_id=name, idempotency_key=f"{name}-now")
        recorded(engine, entity_id=name, idempotency_key=f"{name}-later", not_before=tomorrow())
        recorded(engine, entity_type="booking", entity_id=name, event_type="booking_created", payload={})
    run_in_transaction(
        engine,
        lambda connection: record_refused(
            connection, host=HOST, idempotency_key=REFUSED, change={}, reason="it is empty", source="test"
        ),
    )


def everything(connection: Connection) -> None:
    """All that an application can do with the units b, m and z, and with new ones."""
    record(connection, entity_id="m", idempotency_key="m-new")
    record(connection, entity_id="new-1", idempotency_key="n-new")
    record(connection, entity_id="b", event_type="without_a_rule")
    record(connection, entity_type="booking", entity_id="new-2", event_type="booking_created", payload={})
    assert record(connection, entity_id="m", idempotency_key="m-now").duplicate
    record(connection, entity_id="m", idempotency_key="m-new-later", not_before=tomorrow())
    record(connection, entity_id="m", idempotency_key="past", not_before=datetime.now(UTC) - timedelta(days=1))
    with pytest.raises(IdempotencyConflict):
        record(connection, entity_id="new-3", idempotency_key="m-now")
    with pytest.raises(IdempotencyConflict):
        record(connection, entity_id="m", idempotency_key="m-later")
    with pytest.raises(IdempotencyConflict):
        record(connection, entity_id="m", idempotency_key="z-now", not_before=tomorrow())
    items = [
        {"entity_type": "unit", "entity_id": unit, "event_type": "checked_in", "payload": {}, "idempotency_key": key}
        for unit, key in (("new-4", "batch-1"), ("z", "batch-2"), ("m", "m-batch"))
    ]
    record_changes(connection, items, host=HOST)
    assert all(each.duplicate for each in record_changes(connection, items, host=HOST))
    with pytest.raises(IdempotencyConflict):
        record(connection, entity_id="m", idempotency_key=REFUSED)
    with pytest.raises(IdempotencyConflict):
        record(connection, entity_id="m", idempotency_key=REFUSED, not_before=tomorrow())
    with pytest.raises(ChangesRefused):
        record_changes(connection, [{**items[0], "idempotency_key": REFUSED}], host=HOST)
    with pytest.raises(ChangesRefused):
        record_changes(
            connection, [{**items[0], "idempotency_key": "b-now"}, {**items[1], "idempotency_key": "b-2"}], host=HOST
        )


def test_an_open_transaction_delays_no_other_unit(
    engine: Engine, caller: Engine, mariadb_server: PrivateMariaDB
) -> None:
    existing(engine)
    with caller.connect() as connection:
        everything(connection)
        with mariadb_server.nobody_waits():
            for place in PLACES:
                recorded(engine, entity_id=place, idempotency_key=f"{place}-key")
                recorded(engine, entity_id=place, idempotency_key=f"{place}-other", event_type="guest_locked_out")
                recorded(engine, entity_id=place, idempotency_key=f"{place}-planned", not_before=tomorrow())
                recorded(engine, entity_type="booking", entity_id=place, event_type="booking_created", payload={})
                recorded(caller, entity_id=place, idempotency_key=f"{place}-caller")
                # Without a key it has a random one.
                recorded(engine, entity_id=place)
            batch = [
                accept(HOST, "unit", f"{place}{number}", "checked_in", {}, f"{place}{number}", None, None, "test")
                for place in PLACES
                for number in range(5)
            ]
            submit_changes(engine, HOST, batch)
        connection.commit()
    assert rows(engine, "SELECT COUNT(*) AS n FROM units WHERE newest_change_id IS NULL") == [{"n": 0}]


def test_what_falls_due_is_recorded_beside_an_open_transaction(
    engine: Engine, caller: Engine, mariadb_server: PrivateMariaDB
) -> None:
    existing(engine)
    for place in PLACES:
        recorded(engine, entity_id=place, idempotency_key=f"{place}-due", not_before=tomorrow())
    change_sql(
        engine, "UPDATE scheduled_changes SET not_before = UTC_TIMESTAMP(6) WHERE RIGHT(idempotency_key, 4) = '-due'"
    )
    with caller.connect() as connection:
        everything(connection)
        with mariadb_server.nobody_waits():
            for each in run_in_transaction(engine, lambda relay: due(relay, HOST, 100)):
                assert run_in_transaction(engine, lambda relay, each=each: record_due(relay, each)) is not None  # type: ignore[misc]
        connection.rollback()


def test_a_change_of_the_same_unit_waits_for_the_commit(engine: Engine, caller: Engine) -> None:
    existing(engine)
    with caller.connect() as connection, ThreadPoolExecutor(1) as threads:
        first = record(connection, entity_id="m")
        waiting = threads.submit(recorded, engine, entity_id="m")
        wait_until(lambda: waiting_for_a_lock(engine), "the second change")
        connection.commit()
        second = waiting.result().change_id
    assert first.change_id is not None
    assert second is not None
    assert first.change_id < second


@pytest.mark.parametrize("whole", [False, True], ids=["one by one", "as batches"])
def test_transactions_with_keys_in_random_order_never_fail(
    engine: Engine, caller: Engine, session: Session, whole: bool
) -> None:
    """Each records changes of some units, in their order, which the others do, too; of its own units where MariaDB
    refuses to change what another transaction has changed in the meantime.
    """
    chance = random.Random(5)
    plans = []
    for number in range(THREADS * TRANSACTIONS):
        whose = f"{number % THREADS}-" if session == SESSIONS[-1] else ""
        units = sorted(f"{whose}unit-{each}" for each in chance.sample(range(40), 4))
        keys = [str(uuid.UUID(int=chance.getrandbits(128))) for _ in units]
        plan = [{**change_of(unit), "idempotency_key": key} for unit, key in zip(units, keys, strict=True)]
        # Some are for later.
        plans.append([*plan, {**plan[0], "idempotency_key": f"{keys[0]}-later", "not_before": LATER}])
    start = threading.Barrier(THREADS)
    failed: list[Exception] = []

    def run(thread: int) -> None:
        start.wait()
        for plan in plans[thread::THREADS]:
            try:
                with caller.begin() as connection:
                    if whole:
                        record_changes(connection, reversed(plan), host=HOST)
                    else:
                        for change in plan:
                            record(connection, **change)
            except DBAPIError as error:
                failed.append(error)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(run, range(THREADS)))
    assert [error_code(error) for error in failed] == []
    assert rows(engine, "SELECT COUNT(*) AS n FROM outbox_events") == [{"n": 4 * len(plans)}]


def change_of(unit: str) -> dict[str, Any]:
    return {"entity_type": "unit", "entity_id": unit, "event_type": "booking_created", "payload": {"guest": 7}}


@not_with_both
def test_a_unit_that_changed_since_the_transaction_began_can_be_recorded(engine: Engine, caller: Engine) -> None:
    """No statement of ours fixes the transaction's view, so nothing is newer than it."""
    existing(engine)
    with caller.begin() as connection:
        everything(connection)
        recorded(engine, entity_id="other", payload={"status": "Dirty"})
        last = record(connection, entity_id="other", payload={"status": "Clean"})
    assert rows(engine, "SELECT status, newest_change_id FROM units WHERE id = 'other'") == [
        {"status": "Clean", "newest_change_id": last.change_id}
    ]


@not_with_both
def test_a_key_that_was_used_since_the_transaction_began_gets_its_first_answer(engine: Engine, caller: Engine) -> None:
    with caller.begin() as connection:
        record(connection, entity_id="first")
        earlier = recorded(engine, entity_id="other", idempotency_key="k")
        planned = recorded(engine, entity_id="other", idempotency_key="p", not_before=LATER)
        again = record(connection, entity_id="other", idempotency_key="k")
        planned_again = record(connection, entity_id="other", idempotency_key="p", not_before=LATER)
        (in_a_batch,) = record_changes(
            connection,
            [
                {
                    **change_of("other"),
                    "event_type": "unit_status_changed",
                    "payload": {"status": "Clean"},
                    "idempotency_key": "k",
                }
            ],
            host=HOST,
        )
    assert (again.change_id, again.duplicate) == (earlier.change_id, True)
    assert (in_a_batch.change_id, in_a_batch.duplicate) == (earlier.change_id, True)
    assert (planned_again.scheduled_id, planned_again.duplicate) == (planned.scheduled_id, True)


def test_units_locked_in_opposite_orders_are_a_deadlock_that_is_repeated(engine: Engine, caller: Engine) -> None:
    """Nobody could let both go on. `run_in_transaction` repeats the one that MariaDB rolled back."""
    existing(engine)
    both_hold_one = threading.Barrier(2)
    tries: list[str] = []

    def work(connection: Connection, first: str, second: str) -> None:
        is_first_try = first not in tries
        tries.append(first)
        record(connection, entity_id=first)
        if is_first_try:
            both_hold_one.wait()
        record(connection, entity_id=second)

    with ThreadPoolExecutor(2) as threads:
        orders = (("b", "z"), ("z", "b"))
        ended = [
            threads.submit(run_in_transaction, caller, lambda connection, o=order: work(connection, *o))
            for order in orders
        ]
        for each in ended:
            each.result()
    assert len(tries) == 3
    assert rows(engine, "SELECT COUNT(*) AS n FROM outbox_events WHERE entity_type = 'unit'") == [{"n": 3 + 4}]


def test_an_operators_rule_waits_for_no_open_transaction_and_so_delays_nobody(engine: Engine, caller: Engine) -> None:
    existing(engine)
    by = Actor("ops", Channel.API, verified=True)

    def rule(connection: Connection) -> PriorityClass:
        return decide_rule(
            connection, HOST, "unit_status_changed", PriorityClass.TXN, operator=by, reason="as they all count"
        )

    with caller.connect() as connection, engine.connect() as operator:
        record(connection, entity_id="m")
        with pytest.raises(OperationalError, match="1205"):
            rule(operator)
        assert not waiting_for_a_lock(engine)
        connection.commit()
    assert run_in_transaction(engine, rule) is PriorityClass.LWW


def test_an_xa_transaction_records_as_any_other(engine: Engine, caller: Engine) -> None:
    existing(engine)
    with caller.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("XA START 'oldhost-sync-test'")
        everything(connection)
        connection.exec_driver_sql("XA END 'oldhost-sync-test'")
        connection.exec_driver_sql("XA PREPARE 'oldhost-sync-test'")
        assert rows(engine, "SELECT id FROM outbox_events WHERE idempotency_key = 'm-new'") == []
        connection.exec_driver_sql("XA COMMIT 'oldhost-sync-test'")
    assert len(rows(engine, "SELECT id FROM outbox_events WHERE idempotency_key = 'm-new'")) == 1


def test_a_wait_that_ends_in_an_error_leaves_the_transaction_usable(engine: Engine, caller: Engine) -> None:
    existing(engine)
    with engine.connect() as holder, caller.connect() as connection:
        record(holder, entity_id="b", idempotency_key="held")
        connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 0")
        for unit, key in (("b", "mine"), ("new", "held")):
            with pytest.raises(OperationalError, match="1205"):
                record(connection, entity_id=unit, idempotency_key=key)
        record(connection, entity_id="m", idempotency_key="good")
        connection.commit()
    written = [row["idempotency_key"] for row in rows(engine, "SELECT idempotency_key FROM submitted_keys")]
    assert {"mine", "held"}.isdisjoint(written)
    assert rows(engine, "SELECT id FROM units WHERE id = 'new'") == []
    assert "good" in written
