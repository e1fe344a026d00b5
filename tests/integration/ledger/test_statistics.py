"""Whatever the server believes of its tables, the ledger's statements read few of their rows.

Its statistics may be those of an empty table: taken before the rows came (a table that grows quickly, a restore) and
read again at its start. What they then make it scan is the host's whole ledger: of a busy host, 19 million rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.drivers.events import Applied
from oldhost_sync.oldhost.ledger import Answered, Evidence, Reserved
from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB

pytestmark = pytest.mark.mariadb

KEPT, SENT_AT_ONCE = 3_000, 20
READS_MAX_EACH = 40  # of a statement, for each of its changes
TABLES = ("outbox_events", "nonce_requests", "nonce_requests_archive", "applied_states", "pending_fates")
_ROWS = (
    (
        "INSERT INTO outbox_events (id, host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
        "payload, priority_class, relayed_at, processed_at, outcome, nonce, fate_sequence) SELECT seq, 'oldhost', "
        "CONCAT('old-', seq), '', 'unit', CONCAT('u', seq MOD 50), CONCAT('e', seq MOD 3), '{}', "
        f"IF(seq MOD 2, 'LWW', 'TXN'), NOW(6), NOW(6), 'APPLIED', seq, seq FROM seq_1_to_{KEPT}"
    ),
    (
        "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, completed_at) "
        f"SELECT 'oldhost', seq, CONCAT('old-', seq), seq, 1, '', 'APPLIED', NOW(6) FROM seq_1_to_{KEPT}"
    ),
    (
        "INSERT INTO applied_states (host, entity_type, entity_id, event_type, change_id, payload_hash, nonce) "
        f"SELECT 'oldhost', 'unit', CONCAT('v', seq), 'e1', seq, '', seq FROM seq_1_to_{KEPT}"
    ),
    (
        "INSERT INTO outbox_events (id, host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
        f"payload, priority_class, relayed_at) SELECT {KEPT} + seq, 'oldhost', CONCAT('new-', seq), '', 'unit', "
        "CONCAT('v', seq), CONCAT('e', seq MOD 3), '{}', IF(seq MOD 2, 'LWW', 'TXN'), NOW(6) "
        f"FROM seq_1_to_{KEPT}"
    ),
)


class ReadsOfStatements:
    """How many rows each statement read, at most."""

    def __init__(self, engine: Engine) -> None:
        self.most: dict[str, int] = {}
        self._before = 0
        event.listen(engine, "before_cursor_execute", self._begin)
        event.listen(engine, "after_cursor_execute", self._end)

    def _begin(self, _connection: Connection, cursor: Any, *_: object) -> None:
        self._before = _rows_read(cursor.connection)

    def _end(self, _connection: Connection, cursor: Any, statement: str, *_: object) -> None:
        read = _rows_read(cursor.connection) - self._before
        short = re.sub(r"(%s, )+", "", statement)
        self.most[short] = max(self.most.get(short, 0), read)


def _rows_read(connection: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _, value in cursor.fetchall())


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[PrivateMariaDB]:
    """It keeps the statistics that it has."""
    with PrivateMariaDB(tmp_path) as server:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET GLOBAL innodb_stats_auto_recalc = 0")
        yield server


def all_steps(world: MariaWorld) -> None:
    """A life of two sessions: reserve, send, give back, take back, a takeover with operations in doubt."""
    ledger, ids = world.ledger, list(range(KEPT + 1, KEPT + 1 + SENT_AT_ONCE))
    epoch = ledger.take_over("first").epoch
    ledger.adopt_first(epoch, KEPT + 1)
    operations = reserved(world, epoch, ids)
    answered = None
    for operation in operations[:10]:
        ledger.advance(epoch, answered, operation)
        answered = Answered(operation, Applied(operation.nonce + 1))
    ledger.release_nonces(epoch, answered, operations[9].nonce)
    first, second, *_ = reserved(world, epoch, ids)
    ledger.advance(epoch, None, first)
    ledger.advance(epoch, None, second)
    ledger.uncount_send(epoch, second)
    ledger.check_known(epoch, ids[-1], world.accepted_at_ms(ids[-1]))
    epoch = ledger.take_over("second").epoch
    found = ledger.reconcile(epoch, Evidence(first.nonce + 1))
    assert [fate.change_id for fate in found.fates] == [first.change_id]
    assert len(ledger.fates(ids)) == SENT_AT_ONCE


def reserved(world: MariaWorld, epoch: int, ids: list[int]) -> list[Reserved]:
    return [entry for entry in world.ledger.reserve(epoch, ids) if isinstance(entry, Reserved)]


@pytest.mark.parametrize("started_again", [False, True])
def test_with_the_statistics_of_empty_tables_no_statement_reads_the_ledger(
    own_server: PrivateMariaDB, *, started_again: bool
) -> None:
    with own_server.fresh_database() as engine:
        world = MariaWorld(engine, 10.0)
        for table in TABLES:
            world.execute(f"ANALYZE TABLE {table}")
        for rows in _ROWS:
            world.execute(rows)
        engine.dispose()
        if started_again:
            own_server.stop()
            own_server.start()
        reads = ReadsOfStatements(engine)
        all_steps(world)
    assert len(reads.most) > 20
    assert {statement: rows for statement, rows in reads.most.items() if rows > READS_MAX_EACH * SENT_AT_ONCE} == {}
