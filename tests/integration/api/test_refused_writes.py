"""A database that answers but refuses writes: people are told, not only applications."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, Row, make_url, text

from oldhost_sync.api import http_limits
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.refused_writes import RefusedWrites
from oldhost_sync.probes import health
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.api.conftest import HOST, TOKENS, ScriptedWriter, served

pytestmark = pytest.mark.mariadb
DOOR_CODE = {"entity_type": "unit", "entity_id": "7A", "event_type": "door_code_changed", "payload": {"code": "1"}}
STORED_WITHIN_SECONDS = 10.0


class Clock:
    """Seconds, set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def outbox_away(server: PrivateMariaDB, database_url: str) -> Iterator[None]:
    """Meanwhile each write fails at once, for a fault of the server's."""
    outbox = f"`{make_url(database_url).database}`.outbox_events"
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"RENAME TABLE {outbox} TO {outbox}_away")
        try:
            yield
        finally:
            cursor.execute(f"RENAME TABLE {outbox}_away TO {outbox}")


@contextmanager
def disk_full(server: PrivateMariaDB, database_url: str) -> Iterator[None]:
    """Meanwhile each new row of the outbox is refused with the error of a table that can't grow."""
    database = make_url(database_url).database
    full = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'"
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TRIGGER `{database}`.full BEFORE INSERT ON `{database}`.outbox_events FOR EACH ROW {full}"
        )
        try:
            yield
        finally:
            cursor.execute(f"DROP TRIGGER `{database}`.full")


def alerts_of(engine: Engine, are_there: Callable[[Sequence[Row[Any]]], bool]) -> Sequence[Row[Any]]:
    """What the API's own task has stored, once it has."""
    last = time.monotonic() + STORED_WITHIN_SECONDS
    while True:
        with engine.connect() as connection:
            found = connection.execute(text("SELECT kind, severity, occurrences, message FROM alerts")).all()
        if are_there(found) or time.monotonic() > last:
            return found


def test_writes_that_are_refused_for_long_open_one_alert_with_the_databases_reason(
    database_url: str,
    mariadb_server: PrivateMariaDB,
    engine: Engine,
    writer: ScriptedWriter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_limits, "REFUSED_WRITES_ALERT_SECONDS", 0.05)
    clock = Clock()
    dependencies = Dependencies(HOST, TOKENS, Database(connect_for_api(database_url)), writer, clock=clock)
    with served(create_app(dependencies)) as address, httpx.Client(base_url=address) as client:
        client.headers["Authorization"] = "Bearer shop"
        with outbox_away(mariadb_server, database_url):
            answers = {client.post("/api/changes", json=DOOR_CODE).status_code for _ in range(10)}
            clock.now += http_limits.REFUSED_WRITES_SECONDS
            answers.add(client.post("/api/changes", json=DOOR_CODE).status_code)
        assert answers == {503}
        found = alerts_of(engine, lambda found: bool(found) and found[0].occurrences == 11)
    assert [tuple(row)[:3] for row in found] == [("writes-refused", "critical", 11)]
    assert found[0].message == (
        "The API could not record changes. The last answer was: Nothing was recorded: it is not set up (a table is "
        "missing); run `oldhost-sync migrate`."
    )


def test_a_full_disk_that_no_probe_sees_makes_the_process_not_ready_until_a_write_is_taken(
    database_url: str, mariadb_server: PrivateMariaDB, writer: ScriptedWriter
) -> None:
    """MariaDB's own error for a full disk; it still updates rows in place, as the probe does."""
    clock = Clock()
    database = Database(connect_for_api(database_url), clock=clock)
    dependencies = Dependencies(HOST, TOKENS, database, writer, clock=clock)
    with served(create_app(dependencies)) as address, httpx.Client(base_url=address) as client:
        client.headers["Authorization"] = "Bearer shop"
        assert client.get("/readyz").status_code == 200
        with disk_full(mariadb_server, database_url):
            refused = client.post("/api/changes", json=DOOR_CODE)
            assert (refused.status_code, client.get("/readyz").status_code) == (503, 503)
            assert "table full" in client.get("/readyz").json()["detail"]
            clock.now += http_limits.READY_REFUSED_SECONDS + 1
            assert client.get("/readyz").status_code == 200  # nobody has tried since
            assert client.post("/api/changes", json=DOOR_CODE).status_code == 503
            assert client.get("/readyz").status_code == 503
        clock.now += http_limits.DATABASE_PROBE_SECONDS
        assert client.post("/api/changes", json=DOOR_CODE).status_code == 202
        assert client.get("/readyz").status_code == 200


def test_a_batch_of_which_a_part_is_refused_counts_as_a_refused_write(
    database_url: str, engine: Engine, writer: ScriptedWriter
) -> None:
    dependencies = Dependencies(HOST, TOKENS, Database(connect_for_api(database_url)), writer)
    noted: list[str] = []
    dependencies.refused_writes.note = lambda problem: noted.append(problem.kind)  # type: ignore[method-assign]
    with served(create_app(dependencies)) as address, httpx.Client(base_url=address) as client:
        client.headers["Authorization"] = "Bearer shop"
        assert client.post("/api/changes", json=DOOR_CODE).status_code == 202
        with engine.connect() as other:
            other.exec_driver_sql("SELECT * FROM units WHERE id = '7A' FOR UPDATE")
            batch = {"changes": [DOOR_CODE, DOOR_CODE | {"entity_id": "8B"}]}
            assert client.post("/api/changes/batch", json=batch).status_code == 207
    assert noted == ["contended"]


def test_what_keeps_the_alert_begins_anew_after_an_error_that_nobody_foresaw(
    database_url: str, writer: ScriptedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = threading.Event()
    begun: list[object] = []

    async def fail_once(self: object) -> None:
        begun.append(self)
        if len(begun) == 1:
            raise ZeroDivisionError
        again.set()

    monkeypatch.setattr(RefusedWrites, "keep", fail_once)
    monkeypatch.setattr(health, "ANEW_SECONDS", 0.0)
    with served(create_app(Dependencies(HOST, TOKENS, Database(connect_for_api(database_url)), writer))):
        assert again.wait(STORED_WITHIN_SECONDS)
