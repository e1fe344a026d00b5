"""What people and the relay ask stays cheap however much history is kept: each question reads rows by an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy.limits import RELAY_LOOK_SECONDS
from oldhost_sync.store import alert_events, alerts, audit, retention
from oldhost_sync.store.intake import schedule
from oldhost_sync.store.intake.batch_recorder import ChangeBatch, LockWaits, record_groups
from oldhost_sync.store.intake.validation import accept
from oldhost_sync.store.outbox import outstanding_changes
from oldhost_sync.store.read import (
    change_feed,
    change_status,
    entities,
    figures,
    host_condition,
    late_emergencies,
)
from oldhost_sync.store.read.dead_letters import list_dead_letters
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import HOST, before, change_sql, rows

pytestmark = pytest.mark.mariadb

KEPT = 20_000
_BOUND = "host, nonce, idempotency_key, change_id, epoch, body, status"
_HISTORY = (
    (
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        "priority_class, relayed_at, processed_at, outcome, nonce, fate_sequence) SELECT 'oldhost', CONCAT('k', seq), "
        "'', 'unit', "
        "seq MOD 2500, 'e', '{{}}', 'TXN', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL 60 SECOND, "
        "IF(seq = 77, 'DEAD', 'APPLIED'), seq, seq FROM {sequence}"
    ),
    (
        f"INSERT INTO nonce_requests ({_BOUND}, completed_at) SELECT 'oldhost', seq, CONCAT('k', seq), seq, 1, "
        f"'{{{{}}}}', "
        "'APPLIED', UTC_TIMESTAMP(6) FROM {sequence}"
    ),
    (
        f"INSERT INTO nonce_requests_archive ({_BOUND}, reason) SELECT 'oldhost', seq, CONCAT('k', seq), seq, 1, "
        "'{{}}', 'SENT', 'resolved' FROM {sequence}"
    ),
    (
        "INSERT INTO operator_audit (channel, host, action, operator, reason, change_id) "
        "SELECT 'api', 'oldhost', 'retry', 'anna', 'corrected', seq FROM {sequence}"
    ),
    (
        "INSERT INTO alerts (host, kind, severity, message, dedupe_key, delivered_at, closed_at, is_open) "
        "SELECT 'oldhost', 'ban', 'info', 'm', CONCAT('d', seq), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), NULL FROM "
        "{sequence}"
    ),
    (
        "INSERT INTO alert_events (host, alert_id, event, severity, message, occurrences, delivered_at) "
        "SELECT 'oldhost', seq, 'opened', 'info', 'm', 1, UTC_TIMESTAMP(6) FROM {sequence}"
    ),
    (
        "INSERT INTO scheduled_changes (host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
        "payload, "
        "source, not_before, recorded_at) SELECT 'oldhost', CONCAT('k', seq), '', 'unit', seq, 'e', '{{}}', 's', "
        "UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM {sequence}"
    ),
    "INSERT INTO units (host, id, state) SELECT 'oldhost', seq, '{{}}' FROM {sequence}",
    "INSERT INTO relay_lease (host, owner, expires_at) SELECT 'oldhost', 'one', UTC_TIMESTAMP(6) FROM seq_1_to_1",
    "INSERT INTO nonce_ledger (host, next_nonce, last_applied_nonce) VALUES ('oldhost', 20001, 20000)",
    (
        "INSERT INTO counted_fates (host, sequence, booked_sequence, resolved_epoch, applied) "
        "VALUES ('oldhost', 20000, 20000, 0, 19999)"
    ),
)


@pytest.fixture(scope="module", params=["statistics of now", "statistics of empty tables"])
def long_kept(mariadb_server: PrivateMariaDB, request: pytest.FixtureRequest) -> Iterator[Engine]:
    tables = [statement.split()[2] for statement in _HISTORY]
    with mariadb_server.fresh_database() as engine:
        for table in tables:
            change_sql(engine, f"ALTER TABLE {table} STATS_AUTO_RECALC = 0")
        change_sql(engine, f"ANALYZE TABLE {', '.join(tables)}")
        for statement in _HISTORY:
            change_sql(engine, statement.format(sequence=f"seq_1_to_{KEPT}"))
        if request.param == "statistics of now":
            change_sql(engine, f"ANALYZE TABLE {', '.join(tables)}")
        yield engine
        for table in tables:
            change_sql(engine, f"ALTER TABLE {table} STATS_AUTO_RECALC = DEFAULT")


QUESTIONS: dict[str, Callable[[Connection], Any]] = {
    "a change's fate": lambda connection: change_status.find_fate(connection, HOST, "k77"),
    "the feed": lambda connection: change_feed.read_feed(connection, HOST, change_feed.FeedCursor(0), limit=50),
    "the feed's end": lambda connection: change_feed.read_feed(
        connection, HOST, change_feed.latest_cursor(connection, HOST), limit=50
    ),
    "hosts with fates to write": change_feed.hosts_with_work,
    "fates without a number": lambda connection: change_feed.number_fates(connection, HOST, 50),
    "open alerts": lambda connection: alerts.list_alerts(connection, HOST),
    "all alerts": lambda connection: alerts.list_alerts(connection, HOST, state="all"),
    "the books and what else an overview asks": lambda connection: host_condition.read_status(connection, HOST),
    "how many alerts are open": lambda connection: host_condition.count_open_alerts(connection, HOST),
    "closed alerts of a kind": lambda connection: alerts.list_alerts(connection, HOST, state="closed", kind="ban"),
    "an alert of a rare kind": lambda connection: alerts.list_alerts(connection, HOST, state="all", kind="strays"),
    "undelivered alerts": lambda connection: alert_events.undelivered(connection, HOST),
    "how many are undelivered": lambda connection: alert_events.hosts_with_undelivered(connection, [HOST]),
    "dead letters by reason": lambda connection: alerts.dead_letter_groups(connection, HOST),
    "the end of an alert": lambda connection: alerts.close_alert(connection, HOST, "d5"),
    "operators' acts": lambda connection: audit.list_acts(connection, HOST),
    "hosts with changes that are due": lambda connection: schedule.hosts_due(connection, "one"),
    "what is due": lambda connection: schedule.due(connection, HOST, 100),
    "a cancellation": lambda connection: schedule.cancel(connection, HOST, "k5"),
    "units": lambda connection: entities.list_units(connection, HOST, after_id="5", limit=25),
    "one unit": lambda connection: entities.find_unit(connection, HOST, "5"),
    "pending units": lambda connection: entities.list_units(
        connection, HOST, entities.UnitFilter("PENDING_SYNC"), after_id=None, limit=50
    ),
    "failed units": lambda connection: entities.list_units(
        connection, HOST, entities.UnitFilter("SYNC_FAILED"), after_id=None, limit=50
    ),
    "a property's units": lambda connection: entities.list_units(
        connection, HOST, entities.UnitFilter(property_id="seaview"), after_id=None, limit=50
    ),
    "units of a name": lambda connection: entities.list_units(
        connection, HOST, entities.UnitFilter(name="Seaview 12"), after_id=None, limit=50
    ),
    "an entity's sync status": lambda connection: entities.sync_status(connection, HOST, "unit", "5"),
    "the oldest waiting change": lambda connection: host_condition.oldest_waiting_at(connection, HOST),
    "dead letters": lambda connection: list_dead_letters(connection, HOST, after_id=0, limit=50),
    "a relay's figures of its hosts": lambda connection: figures.read_figures(connection, "one"),
    "how long an operation usually takes": lambda connection: host_condition.usual_service_ms(connection, HOST),
    "what waits by class": lambda connection: host_condition.waiting_lanes(connection, HOST),
    "why emergencies are late": lambda connection: late_emergencies.late_cause(
        connection, HOST, waited_ms=30_000, unrelayed=0, waiting=1
    ),
    "whether others were sent meanwhile": lambda connection: late_emergencies.no_fault(
        connection, HOST, waited_ms=30_000, own=()
    ),
    "forgetting": lambda connection: retention.prune(connection, HOST, before(connection), rows=100),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_reads_what_it_answers_and_not_all_that_is_kept(long_kept: Engine, question: str) -> None:
    with long_kept.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        QUESTIONS[question](connection)
        read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    assert sum(int(value) for _, value in read) < 500


@pytest.mark.parametrize("size", [20, 500])
def test_a_batch_reads_and_locks_its_own_rows_and_not_all_that_is_kept(long_kept: Engine, size: int) -> None:
    changes = [accept(HOST, "unit", str(n), "e", {}, f"new{n}", None, None, "test") for n in range(1, size + 1)]
    with long_kept.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        attempt = record_groups(connection, HOST, ChangeBatch(changes).groups, LockWaits.FOR_NOTHING)
        read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
        locks = connection.exec_driver_sql(
            "SELECT trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()"
        ).scalar_one()
        connection.rollback()
    assert len(attempt.results) == size
    assert sum(int(value) for _, value in read) < 10 * size + 50
    assert locks < 10 * size + 50


WAITING = 5_000
EMERGENCIES = 50
_EVENT = (
    "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
    "priority_class, relayed_at, processed_at, outcome)"
)
_CROWD = (
    # Each ended at a time of its own, which makes the server believe that hardly any share one: NULL, too.
    (
        f"{_EVENT} SELECT 'oldhost', CONCAT('k', seq), '', 'unit', seq MOD 2500, 'e', '{{}}', 'LWW', UTC_TIMESTAMP(6), "
        f"UTC_TIMESTAMP(6) - INTERVAL seq SECOND, 'APPLIED' FROM seq_1_to_{KEPT}"
    ),
    (
        f"{_EVENT} SELECT 'oldhost', CONCAT('w', seq), '', 'unit', CONCAT('w', seq), 'e', '{{}}', 'LWW', "
        f"IF(seq MOD 2, UTC_TIMESTAMP(6) - INTERVAL 60 SECOND, NULL), NULL, NULL FROM seq_1_to_{WAITING}"
    ),
    (
        f"{_EVENT} SELECT 'oldhost', CONCAT('e', seq), '', 'unit', CONCAT('w', seq), 'e', '{{}}', 'EMERGENCY', NULL, "
        "NULL, "
        f"NULL FROM seq_1_to_{EMERGENCIES}"
    ),
    (
        "INSERT INTO units (host, id, state, property_id) SELECT 'oldhost', CONCAT('w', seq), '{}', 'seaview' "
        f"FROM seq_1_to_{WAITING}"
    ),
    (
        "INSERT INTO scheduled_changes (host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
        "payload, source, not_before) SELECT 'oldhost', CONCAT('k', seq), '', 'unit', seq, 'e', '{}', 's', "
        f"UTC_TIMESTAMP(6) + INTERVAL seq MINUTE FROM seq_1_to_{WAITING}"
    ),
    "INSERT INTO relay_lease (host, owner, expires_at) VALUES ('oldhost', 'one', UTC_TIMESTAMP(6))",
    "ANALYZE TABLE outbox_events, units, scheduled_changes",
)


@pytest.fixture(scope="module")
def crowded(mariadb_server: PrivateMariaDB) -> Iterator[Engine]:
    with mariadb_server.fresh_database() as engine:
        for statement in _CROWD:
            change_sql(engine, statement)
        yield engine


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        (
            lambda connection: outstanding_changes.claim_batch(connection, HOST, 500, emergencies_only=True),
            EMERGENCIES * 3 // 2,
        ),
        (lambda connection: outstanding_changes.claim_batch(connection, HOST, 500), 500),
        (lambda connection: outstanding_changes.outstanding_page(connection, HOST, 0, 500, quiet_ms=30_000).refs, 500),
    ],
    ids=["emergencies", "a batch", "a sweep"],
)
def test_a_claim_reads_what_it_gives_and_not_all_that_waits(
    crowded: Engine, claim: Callable[[Connection], list[Any]], found: int
) -> None:
    with crowded.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        given = claim(connection)
        read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    assert len(given) == found
    assert sum(int(value) for _, value in read) < 12 * found


def test_many_emergencies_of_one_entity_read_its_changes_once(engine: Engine) -> None:
    for cls, first, last in (("TXN", 1, 1_000), ("EMERGENCY", 1_001, 1_200)):
        change_sql(
            engine,
            f"{_EVENT} SELECT 'oldhost', CONCAT('k', seq), '', 'unit', 'hot', 'e', '{{}}', '{cls}', NULL, NULL, NULL "
            f"FROM seq_{first}_to_{last}",
        )
    with engine.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        claimed = outstanding_changes.claim_batch(connection, HOST, 500, emergencies_only=True)
        read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    assert [ref.change_id for ref in claimed] == sorted(ref.change_id for ref in claimed)
    assert len(claimed) == 1_200
    assert sum(int(value) for _, value in read) < 10 * len(claimed)


def test_a_look_at_the_outbox_reads_next_to_nothing(crowded: Engine) -> None:
    with crowded.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        seen = outstanding_changes.unrelayed(connection, "one")
        read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    assert seen == {HOST: outstanding_changes.Unrelayed(anything=True, emergency=True)}
    assert sum(int(value) for _, value in read) < 10


@pytest.mark.parametrize(
    ("question", "found"),
    [(change_feed.hosts_with_work, [HOST]), (lambda connection: schedule.hosts_due(connection, "one"), frozenset())],
    ids=["hosts with fates to write", "hosts with changes that are due"],
)
def test_what_a_relay_asks_for_all_its_hosts_reads_next_to_nothing_however_much_waits(
    crowded: Engine, question: Callable[[Connection], Any], found: object
) -> None:
    with crowded.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        assert question(connection) == found
        read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    assert sum(int(value) for _, value in read) < 10


@pytest.mark.parametrize(
    ("relayed", "known"), [("UTC_TIMESTAMP(6)", False), ("NULL", True)], ids=["for the writer", "for the next signal"]
)
def test_a_wait_reads_next_to_nothing_however_much_waits(engine: Engine, relayed: str, known: bool) -> None:
    looks = 5
    change_sql(engine, "INSERT INTO relay_lease (host, owner, expires_at) VALUES ('oldhost', 'one', UTC_TIMESTAMP(6))")
    change_sql(
        engine,
        f"{_EVENT} SELECT 'oldhost', CONCAT('k', seq), '', 'unit', seq, 'e', '{{}}', IF(seq MOD 2, 'TXN', 'LWW'), "
        f"{relayed}, NULL, NULL FROM seq_1_to_2000",
    )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        seen = outstanding_changes.await_unrelayed(
            connection, "one", [HOST] if known else [], looks * RELAY_LOOK_SECONDS
        )
        read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    assert seen == {HOST: outstanding_changes.Unrelayed(anything=known)}
    assert sum(int(value) for _, value in read) < 10 * (looks + 2)


def test_old_nonces_are_forgotten_from_the_lowest_on_and_the_last_ones_stay(engine: Engine) -> None:
    change_sql(
        engine,
        f"INSERT INTO nonce_requests ({_BOUND}, completed_at) SELECT 'oldhost', seq, CONCAT('k', seq), seq, 1, '{{}}', "
        f"'APPLIED', UTC_TIMESTAMP(6) - INTERVAL IF(seq <= 5, 100, 1) DAY FROM seq_1_to_{retention.NONCES_KEPT + 10}",
    )
    last = retention.NONCES_KEPT + 10
    change_sql(
        engine,
        f"INSERT INTO nonce_ledger (host, next_nonce, last_applied_nonce) VALUES ('oldhost', {last + 1}, {last})",
    )
    gone = []
    for _ in range(4):
        with engine.begin() as connection:
            gone.append(retention.prune(connection, HOST, before(connection), rows=2).gone)
    assert gone == [2, 2, 1, 0]
    assert rows(engine, "SELECT MIN(nonce) AS lowest FROM nonce_requests") == [{"lowest": 6}]
    change_sql(engine, "UPDATE nonce_requests SET completed_at = UTC_TIMESTAMP(6) - INTERVAL 100 DAY")
    with engine.begin() as connection:
        assert retention.prune(connection, HOST, before(connection), rows=1000).gone == 4
    assert rows(engine, "SELECT MIN(nonce) AS lowest FROM nonce_requests") == [{"lowest": 10}]


def test_counting_what_is_held_reads_what_is_held_and_the_dead_letters(engine: Engine) -> None:
    sent, ended = "UTC_TIMESTAMP(6)", "UTC_TIMESTAMP(6), 'DEAD'"
    for statement in (
        (
            f"SELECT 'oldhost', CONCAT('d', seq), '', 'unit', CONCAT('d', seq MOD 500), 'e', '{{}}', 'TXN', {sent}, "
            f"{ended} "
            "FROM seq_1_to_1000"
        ),
        (
            f"SELECT 'oldhost', CONCAT('h', seq), '', 'unit', 'd7', 'e', '{{}}', 'TXN', {sent}, NULL, NULL FROM "
            "seq_1_to_2000"
        ),
        (
            f"SELECT 'oldhost', CONCAT('o', seq), '', 'unit', CONCAT('o', seq), 'e', '{{}}', 'TXN', {sent}, NULL, NULL "
            f"FROM seq_1_to_{KEPT}"
        ),
    ):
        change_sql(engine, f"{_EVENT} {statement}")
    with engine.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        assert outstanding_changes.held_back_up_to(connection, HOST, 1_000_000) == 2_000
        read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    assert sum(int(value) for _, value in read) < 3 * (1_000 + 2_000) + 2_000


OLD = 20_000


@pytest.fixture(scope="module")
def past_retention(mariadb_server: PrivateMariaDB) -> Iterator[Engine]:
    """Nearly all is old; of each hundred one is a dead letter, and the last nonces stay. The statistics are stale."""
    with mariadb_server.fresh_database() as engine:
        grow_old(engine)
        yield engine


def grow_old(engine: Engine) -> None:
    change_sql(engine, "ALTER TABLE outbox_events STATS_AUTO_RECALC = 0")
    change_sql(engine, "ALTER TABLE nonce_requests STATS_AUTO_RECALC = 0")
    change_sql(
        engine,
        f"{_EVENT} SELECT 'oldhost', CONCAT('k', seq), '', 'unit', seq MOD 2500, 'e', '{{}}', 'TXN', UTC_TIMESTAMP(6), "
        "UTC_TIMESTAMP(6) - INTERVAL 100 DAY + INTERVAL seq SECOND, IF(seq MOD 100 = 0, 'DEAD', 'APPLIED') "
        f"FROM seq_1_to_{OLD}",
    )
    change_sql(
        engine,
        f"INSERT INTO nonce_requests ({_BOUND}, completed_at) SELECT 'oldhost', seq, CONCAT('k', seq), seq, 1, '{{}}', "
        f"'APPLIED', UTC_TIMESTAMP(6) - INTERVAL 100 DAY FROM seq_1_to_{OLD}",
    )
    change_sql(
        engine,
        f"INSERT INTO nonce_ledger (host, next_nonce, last_applied_nonce) VALUES ('oldhost', {OLD + 1}, {OLD})",
    )


def test_forgetting_among_many_old_rows_reads_and_locks_little_more_than_what_goes(past_retention: Engine) -> None:
    place = retention.BEGINNING
    for _ in range(3):
        with past_retention.connect() as connection:
            connection.exec_driver_sql("FLUSH STATUS")
            done = retention.prune(connection, HOST, before(connection), rows=500, place=place)
            read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
            assert done.gone == 500 + 495
            assert done.more
            assert sum(int(value) for _, value in read) < 5 * done.gone
            locked = rows(past_retention, "SELECT SUM(trx_rows_locked) AS locked FROM information_schema.innodb_trx")
            assert locked[0]["locked"] is None or int(locked[0]["locked"]) <= 3 * done.gone
            connection.commit()
        place = done.place
    assert place.change_id == 1_500


def test_a_pass_comes_to_its_end_though_it_leaves_rows_standing(past_retention: Engine) -> None:
    place, batches = retention.BEGINNING, 0
    while True:
        with past_retention.begin() as connection:
            done = retention.prune(connection, HOST, before(connection), rows=2_000, place=place)
        place, batches = done.place, batches + 1
        if not done.more:
            break
        assert batches < 20
    left = rows(past_retention, "SELECT COUNT(*) AS changes, SUM(outcome = 'DEAD') AS dead FROM outbox_events")
    # The last ten thousand nonces stay, and their changes; of the others the dead letters.
    assert left == [{"changes": retention.NONCES_KEPT + 100, "dead": 200}]
    (horizon,) = rows(past_retention, "SELECT COUNT(*) AS hosts FROM feed_horizon")
    assert horizon == {"hosts": 0}
