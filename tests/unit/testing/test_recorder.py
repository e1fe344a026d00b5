"""The test kit's recorder: an application's tests record in their own SQLite, and no server is needed. What recording
itself does is tested with MariaDB's (tests/integration/store/recording_databases.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings
from django.db import connections, transaction
from django.db.backends.sqlite3.base import DatabaseWrapper
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from oldhost_sync import (
    IdempotencyConflict,
    InvalidChange,
    TransactionNeeded,
    UnknownHost,
    record_change,
    record_changes,
)
from oldhost_sync.policy.limits import PAYLOAD_BYTES_MAX, STATE_BYTES_MAX
from oldhost_sync.testing import Recorder
from tests.conformance.mappings import SHORT
from tests.integration.change_forms import REFUSED, TAKEN, differing

CHANGE: dict[str, Any] = {
    "host": "oldhost", "entity_type": "unit", "entity_id": "a", "event_type": "unit_status_changed",
    "payload": {"status": "Clean"},
}  # fmt: skip
Begin = Callable[[], AbstractContextManager[Any]]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'application.db'}")
    yield engine
    engine.dispose()


@contextmanager
def by_session(path: Path) -> Iterator[Any]:
    engine = create_engine(f"sqlite:///{path}")
    with Session(engine) as session, session.begin():
        yield session
    engine.dispose()


@contextmanager
def by_a_shared_connection(path: Path) -> Iterator[Any]:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    with engine.begin() as connection:
        yield connection
    # The recorder asks it afterwards, so it stays open.


@contextmanager
def by_driver(path: Path) -> Iterator[Any]:
    connection = sqlite3.connect(path)
    with connection:
        yield connection


@contextmanager
def by_django(path: Path) -> Iterator[Any]:
    if not settings.configured:
        settings.configure(USE_TZ=True)
    django.setup()
    given = {"NAME": str(path), "AUTOCOMMIT": True, "OPTIONS": {}, "TIME_ZONE": None, "CONN_MAX_AGE": 0, "TEST": {}}
    connections["default"] = DatabaseWrapper({**given, "CONN_HEALTH_CHECKS": False, "ATOMIC_REQUESTS": False})
    with transaction.atomic():
        yield connections["default"]


WAYS = (by_session, by_a_shared_connection, by_driver, by_django)


@pytest.mark.parametrize("schema", [None, "oldhost_sync"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_change_exists_if_the_application_commits(
    recorder: Recorder, tmp_path: Path, way: Callable[[Path], AbstractContextManager[Any]], schema: str | None
) -> None:
    path = tmp_path / "application.db"
    with way(path) as connection:
        first = record_change(connection, **CHANGE, idempotency_key="k", schema=schema)
        assert record_change(connection, **CHANGE, idempotency_key="k", schema=schema).duplicate
        with pytest.raises(IdempotencyConflict):
            record_change(connection, **{**CHANGE, "entity_id": "b"}, idempotency_key="k", schema=schema)
        with pytest.raises(UnknownHost, match="no host 'nowhere', only oldhost"):
            record_change(connection, **{**CHANGE, "host": "nowhere"}, schema=schema)
    (change,) = recorder.changes()
    assert (change.change_id, change.entity_id, change.payload) == (first.change_id, "a", {"status": "Clean"})
    with suppress(ZeroDivisionError), way(path) as connection:
        record_change(connection, **{**CHANGE, "entity_id": "rolled-back"}, schema=schema)
        raise ZeroDivisionError
    assert "rolled-back" not in [each.entity_id for each in recorder.changes()]


def test_looking_leaves_the_transaction_of_a_shared_connection_open(recorder: Recorder) -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.connect() as connection:
        record_change(connection, **CHANGE)
        assert len(recorder.changes()) == 1
        connection.rollback()
    assert recorder.changes() == []


def test_each_form_of_a_change_is_taken_or_refused_in_the_words_of_every_other_door(
    recorder: Recorder, engine: Engine
) -> None:
    forms = [form for form in [*TAKEN, *REFUSED] if form.is_object and "the change" not in (form.says or "")]
    said: dict[str, str | None] = {}
    for form in forms:
        with engine.begin() as connection:
            try:
                record_change(connection, host="oldhost", **form.value)
                said[form.name] = None
            except InvalidChange as error:
                said[form.name] = str(error)
    assert len(forms) > 100
    assert not differing(forms, said)


@pytest.mark.parametrize("table", ["units", "submitted_keys", "outbox_events"])
def test_an_error_that_is_caught_leaves_nothing(recorder: Recorder, engine: Engine, table: str) -> None:
    with engine.begin() as connection:
        record_change(connection, **CHANGE)
        trigger = "BEGIN SELECT RAISE(FAIL, 'refused'); END"
        connection.exec_driver_sql(f"CREATE TRIGGER refuse BEFORE INSERT ON {table} {trigger}")
        with pytest.raises(DBAPIError, match="refused"):
            record_change(connection, **{**CHANGE, "entity_id": "b"})
        connection.exec_driver_sql("DROP TRIGGER refuse")
    assert [each.entity_id for each in recorder.changes()] == ["a"]
    assert recorder.state("unit", "b") == {}


def test_a_connection_that_commits_each_statement_is_refused(recorder: Recorder, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        for _ in range(2):
            with pytest.raises(TransactionNeeded):
                record_change(connection, **CHANGE)
            with pytest.raises(TransactionNeeded):
                record_changes(connection, [], host="oldhost")
        assert not connection.in_transaction
        assert recorder.changes() == []


def test_a_state_has_a_largest_size(recorder: Recorder, engine: Engine) -> None:
    large = {**CHANGE, "payload": {"text": "x" * (PAYLOAD_BYTES_MAX - 20)}}
    with engine.begin() as connection:
        for number in range(STATE_BYTES_MAX // PAYLOAD_BYTES_MAX):
            record_change(connection, **{**large, "event_type": f"e{number}"})
        with pytest.raises(InvalidChange, match="one too many for this entity"):
            record_change(connection, **{**large, "event_type": "one_more"})
        record_change(connection, **{**CHANGE, "entity_id": "b"})
    assert recorder.changes()[-1].entity_id == "b"


def test_a_host_s_mapping_refuses_what_it_makes_no_operation_of(recorder: Recorder, engine: Engine) -> None:
    recorder.add_host("north", SHORT)
    with engine.begin() as connection:
        with pytest.raises(InvalidChange, match=r"payload\.status is missing"):
            record_change(connection, **{**CHANGE, "host": "north", "payload": {}})
        record_change(connection, **{**CHANGE, "host": "north"})
    assert len(recorder.changes(host="north")) == 1


def test_an_application_s_own_tables_may_have_the_names_of_ours_in_another_schema(
    recorder: Recorder, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE units (mine INTEGER)")
        record_change(connection, **CHANGE, schema="oldhost_sync")
        assert connection.exec_driver_sql("SELECT * FROM units").all() == []
    assert recorder.state("unit", "a") == {"unit_status_changed": {"status": "Clean"}}


def test_the_next_test_begins_with_nothing(recorder: Recorder, engine: Engine) -> None:
    with engine.begin() as connection:
        record_change(connection, **CHANGE, idempotency_key="k")
    following = Recorder()
    with engine.begin() as connection:
        assert following.changes(connection) == []


# -------------------------------------------------------------------------------------------------------------- fates


def record(engine: Engine, *changes: dict[str, Any]) -> None:
    with engine.begin() as connection:
        for each in changes:
            record_change(connection, **{**CHANGE, **each})


def test_of_a_key_s_waiting_lww_changes_only_the_newest_is_sent(recorder: Recorder, engine: Engine) -> None:
    record(engine, {"payload": {"status": "Dirty"}}, {}, {"entity_id": "b"})
    assert recorder.sync_status("unit", "a") == "PENDING_SYNC"
    recorder.settle()
    first, second, other = recorder.changes()
    assert (first.outcome, first.superseded_by) == ("SUPERSEDED", second.change_id)
    assert [(each.outcome, each.nonce) for each in (second, other)] == [("APPLIED", 1), ("APPLIED", 2)]
    assert recorder.sync_status("unit", "a") == "SYNCED"


def test_an_lww_change_equal_to_what_oldhost_has_is_no_operation(recorder: Recorder, engine: Engine) -> None:
    record(engine, {})
    recorder.settle()
    record(engine, {})
    recorder.settle()
    assert [each.outcome for each in recorder.changes()] == ["APPLIED", "NO_OP"]


def test_a_txn_change_waits_behind_a_dead_one_of_its_entity(recorder: Recorder, engine: Engine) -> None:
    txn = {"event_type": "checked_in"}
    record(engine, {**txn, "idempotency_key": "k"}, txn, {"event_type": "guest_locked_out"}, {**txn, "entity_id": "b"})
    recorder.reject("k", "no such guest")
    recorder.settle()
    assert [each.outcome for each in recorder.changes()] == ["DEAD", None, "APPLIED", "APPLIED"]
    assert recorder.changes()[0].error == "no such guest"
    assert recorder.sync_status("unit", "a") == "SYNC_FAILED"
    with pytest.raises(LookupError):
        recorder.reject("k", "twice")


def test_a_withdrawn_change_is_as_if_it_had_never_come(recorder: Recorder, engine: Engine) -> None:
    record(engine, {"idempotency_key": "k1"}, {"idempotency_key": "k2", "payload": {"status": "Dirty"}})
    recorder.withdraw("k2")
    assert recorder.state("unit", "a") == {CHANGE["event_type"]: CHANGE["payload"]}
    recorder.settle()
    assert [each.outcome for each in recorder.changes()] == ["APPLIED", "WITHDRAWN"]
    record(engine, {"entity_id": "b", "idempotency_key": "k3"})
    recorder.withdraw("k3")
    assert (recorder.state("unit", "b"), recorder.sync_status("unit", "b")) == ({}, "SYNCED")
    with pytest.raises(LookupError):
        recorder.withdraw("k1")


def test_a_repeated_key_says_how_far_its_change_got(recorder: Recorder, engine: Engine) -> None:
    record(engine, {"idempotency_key": "k"})
    recorder.settle()
    with engine.begin() as connection:
        again = record_change(connection, **CHANGE, idempotency_key="k")
    assert (again.duplicate, again.outcome, again.nonce) == (True, "APPLIED", 1)


def test_a_scheduled_change_is_no_change_yet(recorder: Recorder, engine: Engine) -> None:
    record(engine, {"not_before": datetime.now(UTC) + timedelta(hours=1), "idempotency_key": "k"})
    assert (recorder.changes(), recorder.scheduled()) == ([], ["k"])
