"""Lists of units by sync status read what they give, whatever the shape of what is kept and of what waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.store import retention
from oldhost_sync.store.read import change_status, host_condition
from oldhost_sync.store.read.dead_letters import find_outcome, list_dead_letters
from oldhost_sync.store.read.entities import LOOKED_AT_MAX, UnitFilter, find_unit, list_units
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import HOST, before, change_sql, recorded, rows

pytestmark = pytest.mark.mariadb

UNITS = 30_000
_EVENT = (
    "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
    "priority_class, processed_at, outcome) SELECT 'oldhost', CONCAT('{key}', seq), '', 'unit', {unit}, 'e', '{{}}', "
    "'LWW', {ended} FROM seq_1_to_{rows}"
)
_NAME = "LPAD(seq, 6, '0')"
_WAITS = "NULL, NULL"


def events(engine: Engine, key: str, unit: str, ended: str, count: int) -> None:
    change_sql(engine, _EVENT.format(key=key, unit=unit, ended=ended, rows=count))


@pytest.fixture
def many(mariadb_server: PrivateMariaDB) -> Iterator[Engine]:
    """Units in step with OldHost, each with one change that was applied."""
    with mariadb_server.fresh_database() as engine:
        change_sql(
            engine, f"INSERT INTO units (host, id, state) SELECT 'oldhost', {_NAME}, '{{}}' FROM seq_1_to_{UNITS}"
        )
        events(engine, "a", _NAME, "UTC_TIMESTAMP(6), 'APPLIED'", UNITS)
        change_sql(
            engine,
            "INSERT INTO applied_states (host, entity_type, entity_id, event_type, change_id, payload_hash, nonce) "
            "SELECT host, entity_type, entity_id, event_type, id, '', id FROM outbox_events",
        )
        change_sql(engine, "ANALYZE TABLE outbox_events, units, applied_states")
        yield engine


def read_by(connection: Connection, status: str, after: str | None = None) -> tuple[list[str], str | None, int]:
    """A page of 50, where it goes on, and how many rows the server read for it."""
    connection.exec_driver_sql("FLUSH STATUS")
    page = list_units(connection, HOST, UnitFilter(status), after_id=after, limit=50)
    read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    return [unit.id for unit in page.units], page.next_after, sum(int(value) for _, value in read)


def test_few_that_wait_are_found_among_many_that_do_not(many: Engine) -> None:
    events(many, "w", f"LPAD(seq * {UNITS // 12}, 6, '0')", _WAITS, 10)
    with many.connect() as connection:
        found, after, read = read_by(connection, "PENDING_SYNC")
    assert (len(found), after) == (10, None)
    assert read < 500


def test_one_unit_with_thousands_that_wait_is_one_unit(many: Engine) -> None:
    events(many, "h", "'000007'", _WAITS, 20_000)
    events(many, "w", "'000009'", _WAITS, 1)
    with many.connect() as connection:
        found, after, read = read_by(connection, "PENDING_SYNC")
    assert (found, after) == (["000007", "000009"], None)
    assert read < 21_000


def test_where_all_wait_a_page_costs_what_it_gives(many: Engine) -> None:
    events(many, "w", _NAME, _WAITS, UNITS)
    with many.connect() as connection:
        found, after, read = read_by(connection, "PENDING_SYNC", after="015000")
        assert found == [f"{number:06}" for number in range(15_001, 15_051)]
        assert read < 2_000
        found, after, read = read_by(connection, "SYNCED")
    # None is in step: the page ends early, and says where to go on.
    assert found == []
    assert after is not None
    assert read < 20 * (LOOKED_AT_MAX + 600)


def test_failed_units_are_found_by_their_dead_letters(many: Engine) -> None:
    events(many, "d", f"LPAD(seq * {UNITS // 300}, 6, '0')", "UTC_TIMESTAMP(6), 'DEAD'", 200)
    with many.connect() as connection:
        found, after, read = read_by(connection, "SYNC_FAILED")
        assert len(found) == 50
        assert read < 3_000
        assert read_by(connection, "SYNC_FAILED", after)[0][0] > found[-1]


def test_a_unit_whose_newest_change_was_forgotten_is_in_step(engine: Engine) -> None:
    recorded(engine)
    change_sql(engine, "DELETE FROM outbox_events")
    with engine.connect() as connection:
        unit = find_unit(connection, HOST, "101")
    assert unit is not None
    assert unit.sync_status == "SYNCED"


def test_a_change_that_was_given_up_is_kept_until_oldhost_has_a_newer_state(engine: Engine) -> None:
    change_id = recorded(engine).change_id
    change_sql(engine, "UPDATE outbox_events SET outcome = 'DISCARDED', processed_at = '2020-01-01'")
    with engine.begin() as connection:
        assert retention.prune(connection, HOST, before(connection), rows=10).gone == 0
        unit = find_unit(connection, HOST, "101")
    assert unit is not None
    assert unit.sync_status == "SYNC_FAILED"
    change_sql(
        engine,
        "INSERT INTO applied_states (host, entity_type, entity_id, event_type, change_id, payload_hash, nonce) "
        f"VALUES ('oldhost', 'unit', '101', 'unit_status_changed', {change_id} + 1, '', 1)",
    )
    with engine.begin() as connection:
        assert retention.prune(connection, HOST, before(connection), rows=10).gone == 1


def test_a_change_that_was_given_up_is_about_to_be_replaced_though_a_rule_changed_its_event_types_class(
    engine: Engine,
) -> None:
    recorded(engine)
    change_sql(
        engine, "UPDATE outbox_events SET outcome = 'DISCARDED', processed_at = '2020-01-01', priority_class = 'TXN'"
    )
    recorded(engine)
    with engine.connect() as connection:
        unit = find_unit(connection, HOST, "101")
    assert unit is not None
    assert unit.sync_status == "PENDING_SYNC"


def test_what_somebody_asks_of_a_change_knows_a_fate_that_waits_for_its_row(engine: Engine) -> None:
    change_id = recorded(engine, idempotency_key="k").change_id
    change_sql(
        engine,
        "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome, nonce, error) "
        "SELECT host, id, entity_type, entity_id, 'DEAD', 7, 'no' FROM outbox_events",
    )
    with engine.connect() as connection:
        fate = change_status.find_fate(connection, HOST, "k")
        unit = find_unit(connection, HOST, "101")
        letters = list_dead_letters(connection, HOST, after_id=0, limit=10)
        assert find_outcome(connection, HOST, change_id or 0) == (True, "DEAD")
        assert host_condition.oldest_waiting_at(connection, HOST) is None
    assert fate is not None
    assert (fate.state, fate.nonce, fate.error, fate.waiting_for) == ("DEAD", 7, "no", [])
    assert unit is not None
    assert unit.sync_status == "SYNC_FAILED"
    assert [(letter["change_id"], letter["error"]) for letter in letters] == [(change_id, "no")]
    assert rows(engine, "SELECT outcome FROM outbox_events") == [{"outcome": None}]
