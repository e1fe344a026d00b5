"""Somebody holds the whole database for a while: writes are told to come again, and nothing is "our fault"."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pymysql
import pytest
from fastapi import FastAPI
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from tests.conformance.private_mariadb import PrivateMariaDB

pytestmark = pytest.mark.mariadb

STATUS = "/api/units/12B/status"
CLEAN = {"status": "Clean"}
# A person waits 6 s at most; a busy machine adds its own. Who waited for the lock would have no answer at all.
ANSWER_SECONDS_MAX = 20.0


@contextmanager
def root(server: PrivateMariaDB, engine: Engine) -> Iterator[pymysql.cursors.Cursor]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {engine.url.database}")
        yield cursor


@pytest.mark.parametrize(
    ("hold", "let_go"),
    [
        ("FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES"),
        ("LOCK TABLES outbox_events WRITE", "UNLOCK TABLES"),
        ("BACKUP LOCK outbox_events", "BACKUP UNLOCK"),
    ],
)
def test_a_write_is_a_503_while_the_tables_are_locked(
    shop: httpx.Client, engine: Engine, mariadb_server: PrivateMariaDB, hold: str, let_go: str
) -> None:
    assert shop.post(STATUS, json=CLEAN).status_code == 202
    with root(mariadb_server, engine) as holder:
        holder.execute(hold)
        started = time.monotonic()
        answer = shop.post(STATUS, json=CLEAN)
        took = time.monotonic() - started
        holder.execute(let_go)
    # A backup lock holds up changes of the table alone.
    assert answer.status_code == (202 if hold.startswith("BACKUP") else 503), answer.text
    assert took < ANSWER_SECONDS_MAX
    deadline = time.monotonic() + 10
    while shop.post(STATUS, json=CLEAN).status_code != 202:
        assert time.monotonic() < deadline


def test_a_write_is_a_503_while_a_long_insert_holds_the_auto_increment(
    shop: httpx.Client, engine: Engine, mariadb_server: PrivateMariaDB
) -> None:
    assert shop.post(STATUS, json=CLEAN).status_code == 202
    long_insert = (
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        "priority_class) SELECT 'other', CONCAT('k', seq, SLEEP(0.05)), '', 'unit', seq, 'e', '{}', 'TXN' FROM "
        "seq_1_to_140"
    )

    def insert() -> None:
        with root(mariadb_server, engine) as cursor:
            cursor.execute(long_insert)

    inserting = threading.Thread(target=insert)
    inserting.start()
    answers = []
    while inserting.is_alive():
        answers.append(shop.post(STATUS, json=CLEAN).status_code)
    assert set(answers) <= {202, 503}
    assert 503 in answers
    assert shop.post(STATUS, json=CLEAN).status_code == 202


def test_a_logged_error_names_the_databases_number(
    app: FastAPI, shop: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    from oldhost_sync.api.access import READERS, access

    async def broken() -> None:
        raise OperationalError("SELECT 'a secret'", {}, pymysql.err.OperationalError(1815, "internal error"))

    app.add_api_route("/broken", broken, **access(READERS))
    with caplog.at_level(logging.ERROR, "oldhost_sync.api"):
        assert shop.get("/broken").status_code == 500
    (logged,) = [record.getMessage() for record in caplog.records if "incident" in record.getMessage()]
    assert "OperationalError (MariaDB 1815)" in logged
    assert "secret" not in logged
