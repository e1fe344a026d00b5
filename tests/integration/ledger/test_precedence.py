"""What goes before a change is found by an index, however many changes and dead letters its entity
and its host have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.oldhost.ledger import Reserved
from oldhost_sync.policy.changes import HELD, WAITING, ChangeResult
from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB

pytestmark = pytest.mark.mariadb

OF_ONE_ENTITY = 50_000
DEAD_LETTERS = 10_000
KEPT = 20_000
ROWS_AT_ONCE = 5_000
# Of a reservation, its row of the ledger and its candidates included.
READS_MAX = 150
READS_EACH = 20  # for each of many candidates
_CHANGE = (
    "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
    "priority_class, processed_at, outcome) SELECT 'oldhost', CONCAT('{entity}-{cls}', seq), '', 'unit', {of}, "
    "{types}, '{{}}', '{cls}', {ended} FROM seq_{first}_to_{last}"
)
WAITS = "NULL, NULL"
DIED = "UTC_TIMESTAMP(6), 'DEAD'"
THREE_TYPES, OWN_TYPES = "CONCAT('e', seq MOD 3)", "CONCAT('e', seq)"


def record_many(
    world: MariaWorld,
    key: str,
    cls: str,
    many: int,
    *,
    ended: str = WAITS,
    entity: str = "",
    types: str = THREE_TYPES,
) -> None:
    """So many changes of one entity, few at a time: a statement is ended after some seconds. `entity`, `types`: SQL."""
    for first in range(1, many, ROWS_AT_ONCE):
        rows = {"first": first, "last": first + ROWS_AT_ONCE - 1, "types": types}
        world.execute(_CHANGE.format(entity=key, cls=cls, ended=ended, of=entity or f"'{key}'", **rows))


@pytest.fixture(scope="module")
def crowd(mariadb_server: PrivateMariaDB) -> Iterator[tuple[MariaWorld, int]]:
    with mariadb_server.fresh_database() as engine:
        world = MariaWorld(engine, 10.0)
        epoch = world.ledger.take_over("first").epoch
        world.ledger.adopt_first(epoch, 501)
        record_many(world, "host", "TXN", DEAD_LETTERS, ended=DIED, entity="seq")
        for cls in ("TXN", "LWW", "EMERGENCY"):
            record_many(world, f"hot-{cls}", cls, OF_ONE_ENTITY)
        record_many(world, "dead", "TXN", DEAD_LETTERS, ended=DIED)
        record_many(world, "held", "TXN", OF_ONE_ENTITY, entity="'dead'")
        world.record("typed", "unit_details_changed")
        record_many(world, "many-types", "TXN", OF_ONE_ENTITY, entity="'typed'", types=OWN_TYPES)
        # Kept as long as their changes: of a busy host, 19 million in 90 days.
        world.execute(
            "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status) SELECT "
            "'oldhost', -CAST(seq AS SIGNED), CONCAT('kept-', seq), 1000000000 + seq, 1, '', 'APPLIED' "
            f"FROM seq_1_to_{KEPT}"
        )
        world.execute("ANALYZE TABLE outbox_events")
        world.execute("ANALYZE TABLE nonce_requests")
        yield world, epoch


def reserve(crowd: tuple[MariaWorld, int], *change_ids: int) -> tuple[Any, int]:
    """One reservation, and how many rows it read; nothing of it is kept."""
    world, epoch = crowd
    before = _reads(world.engine)
    reserved = world.ledger.reserve(epoch, change_ids)
    read = _reads(world.engine) - before
    world.execute("DELETE FROM nonce_requests WHERE nonce > 0")
    world.execute("UPDATE nonce_ledger SET next_nonce = 501")
    return reserved, read


def _reads(engine: Engine) -> int:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SHOW GLOBAL STATUS LIKE 'Handler_read%%'").all()
    return sum(int(value) for _, value in rows)


@pytest.mark.parametrize("cls", ["TXN", "LWW", "EMERGENCY"])
def test_the_newest_of_50_000_waits_for_the_first_ones(crowd: tuple[MariaWorld, int], cls: str) -> None:
    world, _ = crowd
    newest = world.record(f"hot-{cls}")
    refused, read = reserve(crowd, newest)
    assert refused == [ChangeResult(newest, WAITING)]
    assert len(refused.older) == (3 if cls == "LWW" else 100)
    assert read < 10 * READS_MAX
    world.execute("DELETE FROM outbox_events WHERE id = %s", newest)


@pytest.mark.parametrize("cls", ["TXN", "EMERGENCY"])
def test_the_oldest_of_50_000_goes(crowd: tuple[MariaWorld, int], cls: str) -> None:
    world, _ = crowd
    ((oldest,),) = world.read("SELECT MIN(id) FROM outbox_events WHERE entity_id = %s", f"hot-{cls}")
    (entry,), read = reserve(crowd, oldest)
    assert isinstance(entry, Reserved)
    assert read < READS_MAX


@pytest.mark.parametrize("cls", ["TXN", "EMERGENCY"])
def test_the_oldest_60_of_50_000_go_together(crowd: tuple[MariaWorld, int], cls: str) -> None:
    """What is older is read once, not for each of them."""
    world, _ = crowd
    rows = world.read("SELECT id FROM outbox_events WHERE entity_id = %s ORDER BY id LIMIT 60", f"hot-{cls}")
    entries, read = reserve(crowd, *(change_id for (change_id,) in rows))
    assert [entry.nonce for entry in entries] == list(range(501, 561))
    assert read < 60 * READS_EACH


def test_the_next_60_of_50_000_of_as_many_event_types_wait_for_the_older_one_of_another_class(
    crowd: tuple[MariaWorld, int],
) -> None:
    """Its class is read, and not one event type after the other."""
    world, _ = crowd
    (older,), *rows = world.read("SELECT id FROM outbox_events WHERE entity_id = 'typed' ORDER BY id LIMIT 61")
    refused, read = reserve(crowd, *(change_id for (change_id,) in rows))
    assert {ref.change_id for ref in refused.older} == {older, *(change_id for (change_id,) in rows[:-1])}
    assert read < 60 * READS_EACH


def test_a_change_behind_10_000_dead_letters_of_its_entity_is_held(crowd: tuple[MariaWorld, int]) -> None:
    world, _ = crowd
    ((newest,),) = world.read("SELECT MAX(id) FROM outbox_events WHERE entity_id = 'dead'")
    refused, read = reserve(crowd, newest)
    assert refused == [ChangeResult(newest, HELD)]
    assert len(refused.held[0][1]) == 20
    assert read < READS_MAX


def test_an_emergency_passes_50_000_held_changes_of_its_entity(crowd: tuple[MariaWorld, int]) -> None:
    world, _ = crowd
    emergency = world.record("dead", "guest_locked_out")
    (entry,), read = reserve(crowd, emergency)
    assert isinstance(entry, Reserved)
    assert read < READS_MAX


def test_a_reservation_reads_little_of_a_large_ledger(crowd: tuple[MariaWorld, int]) -> None:
    world, _ = crowd
    change_id = world.record("another")
    reserved, read = reserve(crowd, change_id)
    assert len(reserved) == 1
    assert read < READS_MAX
