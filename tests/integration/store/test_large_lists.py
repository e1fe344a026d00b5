"""What people list and search stays quick in a large outbox: no table is scanned, and few rows are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.store import audit
from oldhost_sync.store.read import change_status, entities, host_condition
from oldhost_sync.store.read.change_list import ChangeFilter, list_changes, list_scheduled
from oldhost_sync.store.read.dead_letters import list_dead_letters
from oldhost_sync.store.read.search import search
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import HOST, change_sql

pytestmark = [pytest.mark.mariadb, pytest.mark.slow, pytest.mark.timeout(600)]

CHANGES, UNITS, ACTS, AT_ONCE = 300_000, 5_000, 20_000, 20_000
# A change every three seconds: ten days in all.
BEGAN = datetime(2026, 5, 1, tzinfo=UTC)
_OUTBOX = (
    "INSERT INTO outbox_events (id, host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
    "priority_class, created_at, relayed_at, processed_at, outcome, nonce, error, fate_sequence) "
)
# Of 300 changes: 1 an EMERGENCY, 100 TXN; of 1,000: 1 dead, 1 given up, 50 without a fate. Every seventh of another
# host, and the newest tenth.
_ROWS = (
    f"SELECT seq, IF(seq MOD 7 = 0 OR seq > {CHANGES * 9 // 10}, 'second', 'oldhost'), CONCAT('key-', seq), '', "
    f"IF(seq MOD 50 = 0, 'door', 'unit'), CONCAT('u', seq MOD {UNITS}), CONCAT('event_', seq MOD 12), "
    "CONCAT('{\"text\": \"', REPEAT('as much as is sent every day ', 5), '\"}'), "
    "CASE WHEN seq MOD 300 = 1 THEN 'EMERGENCY' WHEN seq MOD 3 = 0 THEN 'TXN' ELSE 'LWW' END, "
    "'2026-05-01' + INTERVAL seq * 3 SECOND, '2026-05-01', "
    "IF(seq MOD 1000 < 50, NULL, '2026-05-02'), CASE WHEN seq MOD 1000 < 50 THEN NULL WHEN seq MOD 1000 = 60 "
    "THEN 'DEAD' WHEN seq MOD 1000 = 61 THEN 'DISCARDED' WHEN seq MOD 2 = 0 THEN 'SUPERSEDED' ELSE 'APPLIED' END, "
    "IF(seq MOD 1000 < 50, NULL, seq), IF(seq MOD 1000 IN (60, 61), CONCAT('no such guest ', seq), NULL), "
    "IF(seq MOD 1000 < 50, NULL, seq) FROM seq_{first}_to_{last}"
)
_MORE = (
    (
        "INSERT INTO units (host, id, name, property_id, state) SELECT 'oldhost', CONCAT('u', seq), "
        f"CONCAT('Sea view ', seq), CONCAT('p', seq MOD 50), '{{}}' FROM seq_1_to_{UNITS}"
    ),
    f"INSERT INTO entities (host, entity_type, id, state) SELECT 'oldhost', 'door', seq, '{{}}' FROM seq_1_to_{UNITS}",
    (
        "INSERT INTO operator_audit (channel, host, action, operator, reason, change_id) SELECT 'api', 'oldhost', "
        f"IF(seq = 5, 'pause', 'retry'), 'anna', 'r', seq FROM seq_1_to_{ACTS}"
    ),
    (
        "INSERT INTO scheduled_changes (host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
        "payload, source, not_before, recorded_at) SELECT 'oldhost', CONCAT('s', seq), '', 'unit', seq, 'e', "
        f"'{{}}', 's', '2027-01-01' + INTERVAL seq SECOND, IF(seq MOD 2, '2026-05-01', NULL) FROM seq_1_to_{ACTS}"
    ),
    (
        "INSERT INTO applied_states (host, entity_type, entity_id, event_type, change_id, payload_hash, nonce) "
        f"SELECT 'oldhost', 'unit', CONCAT('u', seq MOD {UNITS}), CONCAT('event_', seq MOD 12), seq, '', seq "
        f"FROM seq_1_to_{UNITS}"
    ),
    (
        "INSERT INTO counted_fates (host, sequence, booked_sequence, resolved_epoch) "
        f"VALUES ('oldhost', {CHANGES}, {CHANGES}, 0)"
    ),
)


@pytest.fixture(scope="module")
def crowded(mariadb_server: PrivateMariaDB) -> Iterator[Engine]:
    with mariadb_server.fresh_database() as engine:
        for first in range(1, CHANGES, AT_ONCE):  # in parts, each well within a statement's time
            part = _ROWS.replace("seq_{first}_to_{last}", f"seq_{first}_to_{first + AT_ONCE - 1}")
            change_sql(engine, _OUTBOX + part)
        for statement in _MORE:
            change_sql(engine, statement)
        tables = "outbox_events, units, entities, operator_audit, scheduled_changes, applied_states"
        change_sql(engine, f"ANALYZE TABLE {tables}")
        yield engine


# The filters that are asked about.
ASKED: set[str] = set()


def page(**wanted: Any) -> Callable[[Connection], Any]:
    ASKED.update(wanted)
    return lambda connection: list_changes(connection, HOST, ChangeFilter(**wanted), before_id=None, limit=50)


A_DAY = {"accepted_from": BEGAN + timedelta(days=3), "accepted_before": BEGAN + timedelta(days=4)}
UNIT = {"entity_type": "unit", "entity_id": "u77"}
# Each question, and how many rows it may read: what it shows, and the rows beside it.
QUESTIONS: dict[str, tuple[int, Callable[[Connection], Any]]] = {
    "all changes": (1_000, page()),
    "a later page": (
        1_000,
        lambda connection: list_changes(connection, HOST, ChangeFilter(), before_id=CHANGES // 2, limit=50),
    ),
    "emergencies": (1_000, page(priority_class="EMERGENCY")),
    "late emergencies": (40_000, page(priority_class="EMERGENCY", waited_s=30.0)),
    "an event type": (1_000, page(event_type="event_7")),
    "a unit": (1_000, page(**UNIT)),
    "dead letters": (1_000, page(outcome="DEAD")),
    "applied changes": (1_000, page(outcome="APPLIED")),
    "outstanding changes": (1_000, page(outcome="OUTSTANDING")),
    "an answer": (1_000, page(answer="no such guest")),
    "a day": (6_000, page(**A_DAY)),
    "a property": (6_000, page(property_id="p7")),
    "a rare answer": (6_000, page(answer="no such guest 4060")),
    "a property's dead letters": (6_000, page(property_id="p7", outcome="DEAD")),
    "a day of an event type": (6_000, page(**A_DAY, event_type="event_7")),
    "nothing at all": (40_000, page(priority_class="EMERGENCY", event_type="event_0")),
    "no such unit": (100, page(entity_type="unit", entity_id="nobody")),
    "no such property": (100, page(property_id="nowhere")),
    "one change by its id": (1_500, lambda connection: change_status.find_fate_of_id(connection, HOST, 299)),
    "an entity": (
        500,
        lambda connection: entities.compare_entity(connection, HOST, "unit", "u77", payloads=True),
    ),
    "a search": (200, lambda connection: search(connection, HOST, "Sea")),
    "a search for a number": (200, lambda connection: search(connection, HOST, "4711")),
    "the first dead letters": (
        1_500,
        lambda connection: list_dead_letters(connection, HOST, after_id=0, limit=50),
    ),
    # Changes without a fate are counted, some 11,600.
    "the books, and what else an overview asks": (
        13_000,
        lambda connection: host_condition.read_status(connection, HOST),
    ),
    "acts of a kind": (200, lambda connection: audit.list_acts(connection, HOST, limit=50, action="pause")),
    "the pause": (50, lambda connection: audit.current_pause(connection, HOST)),
    "what is scheduled": (200, lambda connection: list_scheduled(connection, HOST, limit=50)),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_list_reads_little_of_a_large_outbox(crowded: Engine, question: str) -> None:
    rows_max, ask = QUESTIONS[question]
    with crowded.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        ask(connection)
        read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    assert sum(int(value) for _, value in read) < rows_max


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_list_scans_a_table(crowded: Engine, question: str) -> None:
    _, ask = QUESTIONS[question]
    asked: list[tuple[str, Any]] = []
    with crowded.connect() as connection:
        event.listen(connection, "before_cursor_execute", lambda *call: asked.append((call[2], call[3])))
        ask(connection)
    with crowded.connect() as connection:
        for statement, values in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN {statement}", values).mappings().all()
            scans = [step["table"] for step in plan if step["type"] == "ALL" and not str(step["table"]).startswith("<")]
            assert scans == [], statement


def test_every_filter_is_asked_about() -> None:
    """One that comes later must be asked about here, too."""
    assert set(ASKED) == {each.name for each in fields(ChangeFilter)}
