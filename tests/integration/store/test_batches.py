"""Many changes in one transaction: what `record_changes` writes is what so many single records would have written."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync import ChangesRefused, InvalidChange, RecordedChange, UnknownHost, record_change, record_changes
from oldhost_sync.policy import limits
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.transactions import run_in_transaction
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import (
    HOST,
    ON_MARIADB,
    give_rule,
    recorded,
    register,
    rows,
    stale_units,
    wait_until,
    waiting_for_a_lock,
)

pytestmark = pytest.mark.mariadb
TOMORROW = datetime.now(UTC) + timedelta(days=1)


def change(entity_id: str, status: object = "Clean", key: str | None = None, **changes: Any) -> dict[str, Any]:
    made = {
        "entity_type": "unit", "entity_id": entity_id, "event_type": "unit_status_changed",
        "payload": {"status": status},
    } | changes  # fmt: skip
    return made if key is None else made | {"idempotency_key": key}


def batch(engine: Engine, *changes: dict[str, Any]) -> list[RecordedChange]:
    return run_in_transaction(engine, lambda connection: record_changes(connection, changes, host=HOST))


def refused(engine: Engine, *changes: dict[str, Any]) -> list[str]:
    """What became of each; the rest is committed."""
    with engine.connect() as connection:
        with pytest.raises(ChangesRefused) as raised:
            record_changes(connection, changes, host=HOST)
        connection.commit()
    return ["recorded" if isinstance(each, RecordedChange) else type(each).__name__ for each in raised.value.results]


def ids(engine: Engine) -> list[str]:
    return [row["entity_id"] for row in rows(engine, "SELECT entity_id FROM outbox_events ORDER BY id")]


def test_a_batch_writes_what_so_many_single_changes_would_have_written(engine: Engine) -> None:
    chance = random.Random(7)
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("unit_status_changed", {"status": "Clean"}), ("unit_status_changed", {"status": "Dirty", "note": '"b" \\ %s'}),
        ("unit_status_changed", {"status": 5}), ("unit_details_changed", {"name": "Sea", "property_id": None}),
        ("unit_details_changed", {"name": "Hill"}), ("booking_created", {"guest": 7}), ("checked_in", {}),
    ]  # fmt: skip
    changes: list[dict[str, Any]] = []
    for number in range(300):
        event_type, payload = chance.choice(kinds)
        entity_type = chance.choice(["unit", "unit", "booking", "room"])
        changes.append(
            {
                "entity_type": entity_type, "entity_id": f"e{chance.randrange(40)}", "event_type": event_type,
                "payload": {**payload, "revision": number}, "idempotency_key": f"k-{number}",
            }
        )  # fmt: skip
    register(engine, "single")
    recorded(engine, entity_id="e1", host="single")
    recorded(engine, entity_id="e1")
    batch(engine, *changes)
    with engine.begin() as connection:
        for each in changes:
            record_change(connection, host="single", **each)

    def written(host: str) -> list[Any]:
        units = rows(engine, f"SELECT id, name, property_id, status, state FROM units WHERE host = '{host}'")
        others = rows(engine, f"SELECT entity_type, id, state FROM entities WHERE host = '{host}'")
        outbox = rows(
            engine,
            "SELECT idempotency_key, entity_type, entity_id, event_type, payload, priority_class, source, occurred_at "
            f"FROM outbox_events WHERE host = '{host}' AND idempotency_key LIKE 'k-%%' ORDER BY id",
        )
        newest = rows(
            engine,
            "SELECT s.id, o.idempotency_key FROM units s JOIN outbox_events o ON o.id = s.newest_change_id "
            f"WHERE s.host = '{host}' AND s.id <> 'e1' ORDER BY s.id",
        )
        states = [{**row, "state": json.loads(row["state"])} for row in [*units, *others]]
        return [states, outbox, newest]

    assert written(HOST) == written("single")


def test_ids_grow_in_the_order_of_the_items_and_results_are_in_that_order(engine: Engine) -> None:
    answers = batch(engine, *[change(f"u{number % 3}", f"s{number}") for number in range(30)])
    assert [answer.change_id for answer in answers] == sorted(answer.change_id or 0 for answer in answers)
    assert ids(engine) == [f"u{number % 3}" for number in range(30)]
    assert rows(engine, "SELECT id, status FROM units ORDER BY id") == [
        {"id": f"u{number}", "status": f"s{27 + number}"} for number in range(3)
    ]


def test_one_refused_change_keeps_its_entity_out_and_the_others_are_recorded(engine: Engine) -> None:
    fates = refused(engine, change("a"), change("b"), change("a", payload=[]), change("a", "Dirty"))
    assert fates == ["EntityRefused", "recorded", "InvalidChange", "EntityRefused"]
    assert ids(engine) == ["b"]
    assert rows(engine, "SELECT id FROM units") == [{"id": "b"}]


def test_a_misspelt_field_is_refused(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(ChangesRefused, match="unknown fields: not_befor"):
        record_changes(connection, [change("a", not_befor=TOMORROW)], host=HOST)


def test_what_is_no_object_is_refused_and_the_others_are_recorded(engine: Engine) -> None:
    assert refused(engine, change("a"), None) == ["recorded", "InvalidChange"]  # type: ignore[arg-type]
    assert ids(engine) == ["a"]


def test_known_keys_get_the_first_answer_and_another_change_is_a_conflict(engine: Engine) -> None:
    (first,) = batch(engine, change("a", key="k1"))
    again, new = batch(engine, change("a", key="k1"), change("a", "Dirty", key="k2"))
    assert (again.change_id, again.duplicate, again.ref, new.duplicate) == (first.change_id, True, first.ref, False)
    fates = refused(engine, change("a", "Other", key="k1"), change("a", "X", key="k3"), change("b", key="k4"))
    assert fates == ["IdempotencyConflict", "EntityRefused", "recorded"]
    assert ids(engine) == ["a", "a", "b"]


@ON_MARIADB
def test_a_batch_that_was_recorded_waits_for_nobody_when_it_is_repeated(engine: Engine) -> None:
    changes = [change("a", key="k1"), change("b", key="k2")]
    first = batch(engine, *changes)
    with engine.connect() as holder:
        holder.exec_driver_sql("SELECT * FROM units FOR UPDATE")
        assert [each.change_id for each in batch(engine, *changes)] == [each.change_id for each in first]


def test_changes_for_later_are_scheduled_and_are_refused_with_their_entity(engine: Engine) -> None:
    answers = batch(
        engine,
        change("a", key="now"),
        change("a", "Later", key="later", not_before=TOMORROW),
        change("b", key="past", not_before=datetime.now(UTC) - timedelta(seconds=5)),
    )
    assert [answer.sync_status for answer in answers] == ["PENDING_SYNC", "SCHEDULED", "PENDING_SYNC"]
    assert [row["idempotency_key"] for row in rows(engine, "SELECT idempotency_key FROM scheduled_changes")] == [
        "later"
    ]
    assert rows(engine, "SELECT status FROM units WHERE id = 'a'") == [{"status": "Clean"}]
    (again,) = batch(engine, change("a", "Later", key="later", not_before=TOMORROW))
    assert (again.sync_status, again.scheduled_id, again.duplicate) == ("SCHEDULED", answers[1].scheduled_id, True)
    fates = refused(engine, change("c", not_before=TOMORROW), change("c", key="later"))
    assert fates == ["EntityRefused", "IdempotencyConflict"]
    assert len(rows(engine, "SELECT id FROM scheduled_changes")) == 1


def test_the_servers_rule_decides_each_class(engine: Engine) -> None:
    give_rule(engine, "minibar_empty", PriorityClass.LWW)
    give_rule(engine, "unit_status_changed", PriorityClass.TXN)
    kinds = ("minibar_empty", "unit_status_changed", "guest_locked_out", "never_heard_of")
    answers = batch(engine, *[change("a", event_type=kind) for kind in kinds])
    assert [answer.ref.priority_class.value for answer in answers if answer.ref] == ["LWW", "TXN", "EMERGENCY", "TXN"]


@ON_MARIADB
def test_a_batch_waits_for_an_entity_that_another_transaction_holds_and_comes_after_it(engine: Engine) -> None:
    recorded(engine, entity_id="a")
    with engine.connect() as first, ThreadPoolExecutor(1) as threads:
        earlier = record_change(first, host=HOST, **change("a", "first"))
        waiting = threads.submit(batch, engine, change("b"), change("a", "second"))
        wait_until(lambda: waiting_for_a_lock(engine), "the batch")
        first.commit()
        later = waiting.result()
    assert later[1].change_id is not None
    assert earlier.change_id is not None
    assert earlier.change_id < later[1].change_id
    assert rows(engine, "SELECT status FROM units WHERE id = 'a'") == [{"status": "second"}]


@ON_MARIADB
def test_a_key_that_is_taken_meanwhile_is_found_by_the_write_and_its_entity_is_left_out_whole(engine: Engine) -> None:
    """The other transaction has written its row, and commits while the batch waits for it."""
    with engine.connect() as other, ThreadPoolExecutor(1) as threads:
        record_change(other, host=HOST, **change("x", key="k2"))
        waiting = threads.submit(refused, engine, change("a", key="k1"), change("a", key="k2"), change("b", key="k3"))
        wait_until(lambda: waiting_for_a_lock(engine), "the batch")
        other.commit()
        assert waiting.result() == ["EntityRefused", "IdempotencyConflict", "recorded"]
    assert sorted(ids(engine)) == ["b", "x"]
    assert [row["id"] for row in rows(engine, "SELECT id FROM units ORDER BY id")] == ["b", "x"]


@ON_MARIADB
def test_a_key_that_is_scheduled_meanwhile_is_found_after_the_write(engine: Engine) -> None:
    with engine.connect() as other, ThreadPoolExecutor(1) as threads:
        record_change(other, host=HOST, **change("x", key="k1", not_before=TOMORROW))
        waiting = threads.submit(refused, engine, change("a", key="k1"), change("b", key="k2"))
        wait_until(lambda: waiting_for_a_lock(engine), "the batch")
        other.commit()
        assert waiting.result() == ["IdempotencyConflict", "recorded"]
    assert ids(engine) == ["b"]


def test_an_application_goes_on_in_its_transaction_and_may_roll_back(engine: Engine) -> None:
    with engine.connect() as connection:
        with pytest.raises(ChangesRefused):
            record_changes(connection, [change("a"), change("b", payload=[])], host=HOST)
        record_change(connection, host=HOST, **change("c"))
        connection.commit()
        record_changes(connection, [change("d")], host=HOST)
        connection.rollback()
    assert ids(engine) == ["a", "c"]


def test_more_than_the_most_are_refused_at_once(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(InvalidChange, match="at most 500"):
        record_changes(connection, [change("a")] * (limits.BATCH_CHANGES_MAX + 1), host=HOST)


@ON_MARIADB
def test_the_largest_payloads_go_in_several_statements(
    engine: Engine, mariadb_server: PrivateMariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here at 100 KiB a statement, and then at the limit: 500 payloads of 30 KiB whose every character is escaped.

    To write down 15 MB takes a second of CPU; a busy machine may not finish before the server ends idle transactions.
    """
    address = mariadb_server.root_url(str(engine.url.database))
    patient = create_engine(address, idle_transaction_seconds=60)
    monkeypatch.setattr(limits, "BATCH_STATEMENT_BYTES_MAX", 100 * 1024)
    large = [change(f"u{number % 20}", "x" * 60, payload={"n": number, "t": '"' * 14_000}) for number in range(40)]
    assert len(batch(patient, *large)) == 40
    monkeypatch.undo()
    largest = [change(f"v{number}", payload={"n": number, "t": '"' * 15_000}) for number in range(500)]
    patient.dispose()
    with mariadb_server.variable("max_allowed_packet", limits.PACKET_BYTES_MIN):
        assert len(batch(patient, *largest)) == 500
    assert rows(engine, "SELECT COUNT(*) AS n FROM outbox_events") == [{"n": 540}]
    newest = rows(engine, "SELECT JSON_VALUE(state, '$.unit_status_changed.n') AS n FROM units WHERE id = 'u19'")
    assert newest == [{"n": "39"}]
    patient.dispose()


@ON_MARIADB
def test_batches_and_single_changes_of_the_same_entities_at_once_lose_nothing(engine: Engine) -> None:
    def many(writer: int) -> None:
        chance = random.Random(writer)
        for step in range(5):
            units = [f"u{chance.randrange(10)}" for _ in range(30)]
            batch(engine, *[change(unit, f"{writer}-{step}-{at}") for at, unit in enumerate(units)])

    def single(writer: int) -> None:
        chance = random.Random(writer)
        for step in range(40):
            recorded(engine, entity_id=f"u{chance.randrange(10)}", payload={"status": f"{writer}-{step}"})

    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(many, 1), threads.submit(many, 2), *(threads.submit(single, n) for n in (3, 4))]:
            future.result()
    assert rows(engine, "SELECT COUNT(*) AS n FROM outbox_events") == [{"n": 380}]
    assert stale_units(engine) == []


def test_a_batch_for_a_host_that_is_not_registered_is_refused_and_nothing_is_written(engine: Engine) -> None:
    with engine.begin() as connection, pytest.raises(UnknownHost, match="no host 'nrth', only oldhost"):
        record_changes(connection, [change("a")], host="nrth")
    assert rows(engine, "SELECT id FROM outbox_events UNION ALL SELECT 1 FROM units") == []
