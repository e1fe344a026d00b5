"""A database that answers but refuses writes: people are told, not only applications."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from sqlalchemy import Engine, make_url, text

from oldhost_sync.api import limits
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.api.conftest import HOST, TOKENS, ScriptedWriter, served

pytestmark = pytest.mark.mariadb
DOOR_CODE = {"entity_type": "unit", "entity_id": "7A", "event_type": "door_code_changed", "payload": {"code": "1"}}


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


def test_writes_that_are_refused_for_long_open_one_alert_with_the_databases_reason(
    database_url: str, mariadb_server: PrivateMariaDB, engine: Engine, writer: ScriptedWriter
) -> None:
    clock = Clock()
    parts = Dependencies(HOST, TOKENS, Database(connect_for_api(database_url)), writer, clock=clock)
    with served(create_app(parts)) as address, httpx.Client(base_url=address) as client:
        client.headers["Authorization"] = "Bearer shop"
        with outbox_away(mariadb_server, database_url):
            answers = {
                client.post("/api/changes", json=DOOR_CODE).status_code for _ in range(limits.REFUSED_WRITES_MIN)
            }
            clock.now += limits.REFUSED_WRITES_SECONDS
            answers.add(client.post("/api/changes", json=DOOR_CODE).status_code)
        assert answers == {503}
        asyncio.run(parts.refused_writes.tell())
    with engine.connect() as connection:
        found = connection.execute(text("SELECT kind, severity, occurrences, message FROM alerts")).all()
    assert [tuple(row)[:3] for row in found] == [("writes-refused", "critical", limits.REFUSED_WRITES_MIN + 1)]
    assert found[0].message == (
        "The API could not record changes. The last answer was: Nothing was recorded: it is not set up (a table is "
        "missing); run `oldhost-sync migrate`."
    )
