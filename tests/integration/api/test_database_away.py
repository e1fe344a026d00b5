"""Without its database the API says so at once, records nothing, and is back by itself."""

from __future__ import annotations

import getpass
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import httpx
import pymysql
import pytest
from fastapi import FastAPI
from sqlalchemy import make_url, text
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.api import http_limits
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.store import transactions
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import CommitUncertain
from tests.integration.api.conftest import HOST, TOKENS, ScriptedWriter, a_client, served
from tests.integration.api.test_writes import count_changes
from tests.integration.store.writing import change_sql

if TYPE_CHECKING:
    from tests.conformance.private_mariadb import PrivateMariaDB

STATUS = "/api/units/12B/status"
CLEAN = {"status": "Clean"}
VIEWER = {"Authorization": "Bearer vera"}


@pytest.fixture
def stopped(mariadb_server: PrivateMariaDB, database_url: str) -> Iterator[PrivateMariaDB]:
    """For tests that stop the server: it runs again afterwards."""
    yield mariadb_server
    if not mariadb_server.child.running:
        mariadb_server.start()


@contextmanager
def frozen(database: PrivateMariaDB) -> Iterator[None]:
    """A signal is on its way for a moment, in which a server may still answer."""
    os.kill(database.child.pid, signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, database.child.pid, os.WSTOPPED | os.WNOWAIT)
        yield
    finally:
        os.kill(database.child.pid, signal.SIGCONT)


@pytest.fixture
def root(mariadb_server: PrivateMariaDB, engine: Engine) -> Iterator[Engine]:
    """Who may change the tables."""
    root = create_engine(mariadb_server.root_url(str(engine.url.database)))
    yield root
    root.dispose()


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When somebody called the database's server for a new connection."""
    moments: list[float] = []
    really = pymysql.connections.Connection.connect

    def noted(self: pymysql.Connection, sock: Any = None) -> None:
        moments.append(time.monotonic())
        really(self, sock)

    monkeypatch.setattr(pymysql.connections.Connection, "connect", noted)
    return moments


def test_a_write_is_refused_at_once_and_works_again_afterwards(
    shop: httpx.Client, stopped: PrivateMariaDB, tries: list[float]
) -> None:
    """At once: without a try, but for one in each probe interval."""
    assert shop.post(STATUS, json=CLEAN).status_code == 202
    stopped.kill()
    first = shop.post(STATUS, json=CLEAN)
    assert first.status_code == 503
    assert first.json()["type"].endswith("database-away")
    assert first.headers["retry-after"] == "1"
    tries.clear()
    for _ in range(20):
        assert shop.post(STATUS, json=CLEAN).status_code == 503
    between = [later - earlier for earlier, later in pairwise(tries)]
    assert all(seconds >= http_limits.DATABASE_PROBE_SECONDS for seconds in between)
    assert shop.get("/readyz").status_code == 503
    assert shop.get("/healthz").status_code == 200
    stopped.start()
    deadline = time.monotonic() + 30
    while shop.post(STATUS, json=CLEAN).status_code != 202:
        assert time.monotonic() < deadline
    while shop.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline


def test_a_database_that_is_frozen_keeps_nobody_waiting(
    shop: httpx.Client, stopped: PrivateMariaDB, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was under way may or may not have been recorded, and says so; a question leaves nothing uncertain."""
    assert shop.post(STATUS, json=CLEAN).status_code == 202
    monkeypatch.setattr(http_limits, "DATABASE_ANSWER_SECONDS_MAX", 0.3)
    monkeypatch.setattr(http_limits, "DATABASE_PROBE_SECONDS", 0.0)
    monkeypatch.setattr(http_limits, "DATABASE_QUEUE_SECONDS_MAX", 0.1)
    with frozen(stopped):
        write = shop.post(STATUS, json={"status": "Dirty"})
        at_once = shop.get("/api/units/12B")
    assert (write.status_code, write.json()["type"].rpartition(":")[2]) == (503, "commit-uncertain")
    assert (at_once.status_code, at_once.json()["type"].rpartition(":")[2]) == (503, "database-away")
    deadline = time.monotonic() + 20
    again = {"Idempotency-Key": write.json()["idempotency_key"]}
    while shop.post(STATUS, json={"status": "Dirty"}, headers=again).status_code != 202:
        assert time.monotonic() < deadline
    assert count_changes(engine) == 2


def test_every_route_that_needs_the_database_says_503(anna: httpx.Client, stopped: PrivateMariaDB) -> None:
    stopped.kill()
    for path in ("/api/units", "/api/units/1", "/api/changes", "/api/changes/k", "/api/writer/status", "/api/alerts"):
        answer = anna.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    stopped.start()


def test_without_tables_it_says_to_migrate(mariadb_server: PrivateMariaDB, writer: ScriptedWriter) -> None:
    engine = connect_for_api(mariadb_server.create_database("empty").app)
    app = create_app(Dependencies(HOST, TOKENS, Database(engine), writer))
    with served(app) as address, a_client(address, "shop") as client:
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "oldhost-sync migrate" in answer.json()["detail"]
        assert client.post(STATUS, json=CLEAN).status_code == 503
    mariadb_server.drop_database("empty")


def test_an_account_without_a_right_is_told_to_applications_and_breaks_no_circuit(
    mariadb_server: PrivateMariaDB, database_url: str, writer: ScriptedWriter
) -> None:
    with mariadb_server._root() as cursor:
        cursor.execute("CREATE OR REPLACE USER 'reader'@'%' IDENTIFIED BY 'secret'")
        name = str(make_url(database_url).database)
        cursor.execute(f"GRANT SELECT ON `{name}`.* TO 'reader'@'%'")
    url = make_url(database_url).set(username="reader", password="secret").render_as_string(hide_password=False)
    database = Database(connect_for_api(url))
    with (
        served(create_app(Dependencies(HOST, TOKENS, database, writer))) as address,
        a_client(address, "shop") as client,
    ):
        refused = client.post(STATUS, json=CLEAN)
        read = client.get("/api/units")
    with mariadb_server._root() as cursor:
        cursor.execute("DROP USER 'reader'@'%'")
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (503, "database-unsuitable")
    assert "access denied to a table: INSERT" in refused.json()["detail"]
    assert "administrator" in refused.json()["action"]
    assert read.status_code == 200


@pytest.mark.parametrize(
    ("change", "undo", "why"),
    [
        (
            "ALTER TABLE outbox_events ADD COLUMN theirs INT NOT NULL",
            "ALTER TABLE outbox_events DROP COLUMN theirs",
            "Field 'theirs' doesn't have a default value (MariaDB 1364)",
        ),
        (
            "CREATE TRIGGER theirs BEFORE INSERT ON units FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'Jo'",
            "DROP TRIGGER theirs",
            "a trigger or routine of the database refuses a statement (MariaDB 1644)",
        ),
    ],
    ids=["column", "trigger"],
)
def test_what_somebody_added_to_the_database_is_told_as_the_reason_and_logged_once(
    shop: httpx.Client, root: Engine, change: str, undo: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No fault of ours, so no 500; all else works, and so do writes as soon as it was undone."""
    transactions._logged_at.clear()
    change_sql(root, change)
    try:
        answers = [shop.post(STATUS, json=CLEAN) for _ in range(3)]
        assert shop.get("/api/units").status_code == 200
    finally:
        change_sql(root, undo)
    for answer in answers:
        assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (503, "database-unsuitable")
        assert answer.json()["detail"] == f"Nothing was recorded: {why}."
    told = [record.getMessage() for record in caplog.records if record.name == transactions.__name__]
    assert [line.partition(", in ")[0] for line in told] == [why]
    assert "INSERT INTO " in told[0]
    assert shop.post(STATUS, json=CLEAN).status_code == 202


def test_while_the_account_is_refused_every_write_is_told_so(
    mariadb_server: PrivateMariaDB, database_url: str, writer: ScriptedWriter
) -> None:
    """Also those that are refused at once, because one before them was."""
    url = make_url(database_url).set(password="mistyped").render_as_string(hide_password=False)
    database = Database(connect_for_api(url))
    with (
        served(create_app(Dependencies(HOST, TOKENS, database, writer))) as address,
        a_client(address, "shop") as client,
    ):
        answers = [client.post(STATUS, json=CLEAN) for _ in range(3)]
        assert database.circuit.is_open
    kinds = [each.json()["type"].rpartition(":")[2] for each in answers]
    assert kinds == ["database-unsuitable"] * 3


def test_a_server_that_forgets_commits_gets_no_change(
    app: FastAPI, mariadb_server: PrivateMariaDB, engine: Engine
) -> None:
    with mariadb_server._root() as cursor:
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        try:
            with served(app) as address, a_client(address, "shop") as client:
                answers = [client.post(STATUS, json=CLEAN), client.get("/readyz")]
        finally:
            cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    for answer in answers:
        assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (503, "database-unsuitable")
        assert "innodb_flush_log_at_trx_commit is 2; set it to 1" in answer.json()["detail"]
    assert count_changes(engine) == 0


def test_a_row_that_stays_locked_is_a_503_that_says_to_repeat(shop: httpx.Client, engine: Engine) -> None:
    assert shop.post(STATUS, json=CLEAN).status_code == 202
    with engine.connect() as connection:
        connection.execute(text("SET SESSION idle_transaction_timeout = 0"))  # as an application's own transaction
        connection.execute(text("SELECT * FROM units FOR UPDATE"))
        answer = shop.post(STATUS, json={"status": "Dirty"})
        assert answer.status_code == 503
        assert answer.json()["type"].endswith("contended")
    assert shop.get("/api/units/12B").json()["status"] == "Clean"
    assert shop.post(STATUS, json={"status": "Dirty"}).status_code == 202


def test_a_commit_whose_end_is_unknown_names_the_key_and_can_be_repeated(
    shop: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_and_lose_the_answer(connection: Connection) -> None:
        connection.commit()
        raise CommitUncertain("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "_commit", commit_and_lose_the_answer)
        answer = shop.post(STATUS, json=CLEAN)
    problem = answer.json()
    assert (answer.status_code, problem["type"].rpartition(":")[2]) == (503, "commit-uncertain")
    assert "repeat the request with that key" in problem["action"]
    deadline = time.monotonic() + 10
    again = {"Idempotency-Key": problem["idempotency_key"]}
    while (repeated := shop.post(STATUS, json=CLEAN, headers=again)).status_code == 503:
        assert time.monotonic() < deadline
    assert (repeated.status_code, repeated.headers["idempotency-replayed"]) == (202, "true")
    assert count_changes(engine) == 1


def test_an_error_nobody_expected_is_a_500_without_its_text(app: FastAPI, shop: httpx.Client) -> None:
    async def broken() -> None:
        raise RuntimeError("a secret")

    from oldhost_sync.api.access import READERS, access

    app.add_api_route("/broken", broken, **access(READERS))
    answer = shop.get("/broken")
    assert answer.status_code == 500
    assert answer.json()["incident"]
    assert "secret" not in answer.text


def test_readiness_knows_that_no_write_can_succeed_while_somebody_holds_the_global_read_lock(
    shop: httpx.Client, mariadb_server: PrivateMariaDB
) -> None:
    """As a backup does: all can be read, and every write waits."""
    assert shop.get("/readyz").status_code == 200
    with (
        pymysql.connect(unix_socket=mariadb_server._socket, user=getpass.getuser()) as backup,
        backup.cursor() as cursor,
    ):
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        deadline = time.monotonic() + 10
        while shop.get("/readyz").status_code != 503:
            assert time.monotonic() < deadline
        assert shop.get("/readyz").status_code == 503
        assert shop.get("/healthz").status_code == 200
        cursor.execute("UNLOCK TABLES")
    deadline = time.monotonic() + 10
    while shop.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline
    assert shop.post(STATUS, json=CLEAN).status_code == 202


def test_probes_share_a_look(shop: httpx.Client, engine: Engine) -> None:
    """However many ask, it is one write that writes nothing in a second."""
    count = text("SHOW GLOBAL STATUS LIKE 'Com_delete'")
    with engine.connect() as connection:
        before = int(connection.execute(count).one()[1])
        began = time.monotonic()
        for _ in range(50):
            assert shop.get("/readyz").status_code == 200
        looks = 1 + (time.monotonic() - began) / http_limits.READY_SECONDS
        assert int(connection.execute(count).one()[1]) - before <= looks + 1


@pytest.mark.parametrize(
    "lacking",
    [
        "UPDATE oldhost_sync_revision SET version_num = '0000'",
        f"DELETE FROM event_rules WHERE host = '{HOST}'",
    ],
    ids=["a schema of today", "the host"],
)
def test_a_database_that_lacks_what_is_needed_is_told_to_probes_without_a_name(
    shop: httpx.Client, engine: Engine, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API may have begun while it was away, and could not look then."""
    monkeypatch.setattr(http_limits, "READY_SECONDS", 0.0)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO event_rules VALUES ('seaview', 'checked_in', 'TXN')"))
        connection.execute(text(lacking))
    answer = shop.get("/readyz")
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (503, "database-unsuitable")
    assert "seaview" not in answer.text


def test_a_database_that_is_frozen_is_told_to_probes_in_time(
    shop: httpx.Client, stopped: PrivateMariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the look at it hangs; and that it answers again."""
    monkeypatch.setattr(http_limits, "READY_SECONDS", 0.0)
    monkeypatch.setattr(http_limits, "READY_POLL_SECONDS_MAX", 0.5)
    assert shop.get("/readyz").status_code == 200
    with frozen(stopped):
        began = time.monotonic()
        answers = [shop.get("/readyz") for _ in range(3)]
        assert time.monotonic() - began < 3
    assert [answer.status_code for answer in answers] == [503] * 3
    assert answers[0].json()["type"].endswith("database-away")
    deadline = time.monotonic() + 20
    while shop.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline


def test_probes_take_no_thread_from_requests(address: str, shop: httpx.Client, engine: Engine) -> None:
    """All of them stand behind a lock; the probe does not."""
    assert shop.post(STATUS, json=CLEAN).status_code == 202
    with engine.connect() as connection, ThreadPoolExecutor(http_limits.DATABASE_THREADS + 1) as threads:
        connection.execute(text("SELECT * FROM units FOR UPDATE"))

        def write(number: int) -> int:
            with a_client(address, "shop") as client:
                return client.post(STATUS, json={"status": str(number)}).status_code

        writes = [threads.submit(write, number) for number in range(http_limits.DATABASE_THREADS + 1)]
        deadline = time.monotonic() + 10
        with a_client(address) as client:
            all_but_one = f"oldhost_sync_api_database_waiting {http_limits.DATABASE_THREADS}.0"
            while all_but_one not in shop.get("/metrics", headers=VIEWER).text:
                assert time.monotonic() < deadline
            assert client.get("/readyz").status_code == 200
        connection.rollback()
        assert {write.result() for write in writes} <= {202, 503}
