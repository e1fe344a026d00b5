"""The whole product as it is deployed, to be hurt and looked at from outside.

API, relays, workers and the simulator are processes of their own; MariaDB and Temporal are real servers, given. What a
test does to them are signals to processes, faults at OldHost's admin port, and rows read by plain SQL. Nothing of the
product is switched into a test mode; only spans are short.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import secrets
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import pymysql
from temporalio.client import Client
from temporalio.service import RPCError

from oldhost_sync.settings import Settings, load_settings
from oldhost_sync.stack.forked_child import ForkedChild
from oldhost_sync.stack.machine import free_port
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.processes import Child
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.intake.rules import seed_rules
from oldhost_sync.store.mappings import install_mappings
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.temporal.client import DATA_CONVERTER, start_writer, writer_handle, writer_policy

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS_MAX = 60.0
LOOK_AGAIN_SECONDS = 0.02
TOKEN = "a token of the tests"

# As short as the relation between them allows: settle covers 1 s to start writing, the timeout, and 2 s of late
# applies.
SHORT: dict[str, Any] = {
    "debounce_seconds": 0.3,
    "max_wait_seconds": 1.0,
    "ban_seconds": 2.0,
    "request_timeout_seconds": 0.5,
    "settle_seconds": 3.5,
    "sweep_seconds": 5.0,
    "probe_seconds": 5.0,
}


def host_name(kind: str) -> str:
    """A host that no other test has: a writer records what all runs of its host left unread on this Temporal server.

    A port in the name would not do: the system gives a port again.
    """
    return f"{kind}-{secrets.token_hex(4)}"


@dataclass
class Product:
    """`with Product(folder, urls, temporal) as product: product.start_simulator(); product.start("worker")`.

    `forked`: roles that run this code are forked, not loaded anew (`ForkedChild`).
    """

    folder: Path
    database: DatabaseUrls
    temporal_address: str
    latency_ms: float = 20.0
    given: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    forked: bool = True
    children: dict[str, Child] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.oldhost_port, self.admin_port, api_port = free_port(), free_port(), free_port()
        digest = hashlib.sha256(TOKEN.encode()).hexdigest()
        self.settings: Settings = load_settings(
            _env_file=None,
            database_url=self.database.app,
            oldhost_url=f"http://127.0.0.1:{self.oldhost_port}",
            api_bind=f"127.0.0.1:{api_port}",
            api_tokens=f"tests:ops:{digest}",
            quota_emergencies=0,  # one token makes everybody's load
            **(SHORT | {"host": host_name("oldhost")} | self.given),
        )
        self.api = Api(api_port)

    def __enter__(self) -> Self:
        self._make_hosts_known()
        return self

    def _make_hosts_known(self) -> None:
        """As `oldhost-sync migrate` does it; the database was migrated before these hosts had a name."""
        engine = create_engine(self.database.app, pool_size=1)
        try:
            for host in self.settings.hosts():
                run_in_transaction(engine, partial(seed_rules, host=host))
            run_in_transaction(engine, partial(install_mappings, mappings=self.settings.mappings()))
        finally:
            engine.dispose()

    def __exit__(self, *_: object) -> None:
        for child in reversed(self.children.values()):
            child.kill()
        # Last: a relay that still runs starts a writer that has ended again, and the next test's worker would serve it.
        with contextlib.suppress(RPCError, RuntimeError, OSError):
            self.ask(lambda client: writer_handle(client, self.host).terminate("the test is over"))

    @property
    def host(self) -> str:
        return self.settings.host

    # ---------------------------------------------------------------------------------------------------- processes

    def start(self, role: str, name: str = "", *, code: Path = ROOT, **settings: Any) -> Child:
        """Start a role (worker, relay, api); `settings` differ from the others' for this process alone.

        `code`: the folder whose product it is; another release's, where two run side by side.
        """
        name = name or role
        environment = self.environment(self.settings.model_copy(update=settings)) | {"PYTHONPATH": str(code)}
        return self._start(name, [sys.executable, "-m", "oldhost_sync.cli", role], environment, code)

    def start_as(self, name: str, code: Path) -> None:
        """Start a role again, of another release than before."""
        child = self.children[name]
        child.folder, child.env = code, {**(child.env or {}), "PYTHONPATH": str(code)}
        child.start()

    def start_all(self) -> None:
        """OldHost, one process of each role, and the writer."""
        self.start_simulator()
        self.start("relay")
        self.start_worker()
        self.start_api()
        self.start_writer()

    def start_worker(self, name: str = "worker", **settings: Any) -> Child:
        """Start a worker and return when it is at work."""
        worker = self.start("worker", name, **settings)
        worker.wait_until(lambda: "is at work" in worker.said(), READY_SECONDS_MAX)
        return worker

    def start_api(self) -> Child:
        api = self.start("api")
        api.wait_until(self.api.answers, READY_SECONDS_MAX)
        return api

    def start_simulator(self) -> Child:
        """Start OldHost; started again it goes on where its state file ends."""
        options = {
            "--port": self.oldhost_port,
            "--admin-port": self.admin_port,
            "--latency-ms": self.latency_ms,
            "--ban-seconds": self.settings.ban_seconds,
            "--state-file": self.folder / "oldhost.jsonl",
            "--seed": self.seed,
        }
        argv = [
            sys.executable,
            "-m",
            "oldhost_simulator",
            *(str(part) for option in options.items() for part in option),
        ]
        child = self._start("simulator", argv, None)
        child.wait_until(lambda: "\n" in child.said(), READY_SECONDS_MAX)
        return child

    def environment(self, settings: Settings | None = None) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SYNC_", "TEMPORAL_"))}
        return own | (settings or self.settings).to_environment() | {"TEMPORAL_ADDRESS": self.temporal_address}

    def _start(self, name: str, argv: list[str], environment: dict[str, str] | None, folder: Path = ROOT) -> Child:
        child = self.children.get(name)
        if child is None:
            kind = ForkedChild if self.forked and folder == ROOT else Child
            child = self.children[name] = kind(name, argv, self.folder / f"{name}.log", environment, folder=folder)
        child.start()
        return child

    def logs(self) -> str:
        """All that the product's roles ever said."""
        return "\n".join(
            child.log.read_text(errors="replace") for name, child in self.children.items() if name != "simulator"
        )

    # -------------------------------------------------------------------------------------------------------- OldHost

    def admin(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask OldHost's admin port."""
        data = None if body is None else json.dumps(body).encode()
        address = f"http://127.0.0.1:{self.admin_port}{path}"
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def fault(self, name: str, **parameters: Any) -> None:
        self.admin("POST", "/faults", {"name": name, **parameters})

    def no_faults(self) -> None:
        self.admin("DELETE", "/faults")

    def journal(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.admin("GET", "/journal?since=0&limit=1000000")["entries"]
        return entries

    def applied(self) -> list[tuple[int, int]]:
        """(nonce, change id) of all that OldHost applied, in its order."""
        return [(one["nonce"], one["body"]["event_id"]) for one in self.journal() if one["outcome"] == "applied"]

    def stats(self) -> dict[str, Any]:
        return self.admin("GET", "/stats")

    def check_clean(self) -> None:
        """OldHost saw neither gap nor replay (I1), each change once, and nonces without a hole."""
        stats = self.stats()
        assert (stats["gaps"], stats["replays"], stats["bans"]) == (0, 0, 0), stats
        applied = self.applied()
        assert [nonce for nonce, _ in applied] == list(range(1, len(applied) + 1))
        ids = [change_id for _, change_id in applied]
        assert len(ids) == len(set(ids)), "a change was applied twice"

    # ------------------------------------------------------------------------------------------------------- database

    def sql(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """Rows of one statement in a transaction of its own."""
        with contextlib.closing(self.connect_database()) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())

    def connect_database(self) -> pymysql.Connection[pymysql.cursors.DictCursor]:
        return connect_database(self.database.app)

    def fates(self) -> dict[int, str | None]:
        return {row["id"]: row["outcome"] for row in self.sql("SELECT id, outcome FROM outbox_events ORDER BY id")}

    def requests(self, status: str) -> list[dict[str, Any]]:
        return self.sql("SELECT nonce, change_id, sends, epoch FROM nonce_requests WHERE status = %s", status)

    def all_have_fates(self, count: int) -> bool:
        fates = self.fates()
        return len(fates) == count and None not in fates.values()

    def open_alerts(self) -> list[str]:
        return [row["kind"] for row in self.sql("SELECT kind FROM alerts WHERE is_open = 1 ORDER BY id")]

    # ------------------------------------------------------------------------------------------------------ the writer

    def ask(self, act: Callable[[Client], Awaitable[T]]) -> T:
        """Run `act` with a client of its own, also where a loop runs already."""
        result: list[T] = []
        failed: list[BaseException] = []

        async def connected() -> T:
            return await act(await Client.connect(self.temporal_address, data_converter=DATA_CONVERTER))

        def run() -> None:
            try:
                result.append(asyncio.run(connected()))
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return result[0]

    def start_writer(self) -> None:
        self.ask(lambda client: start_writer(client, self.host, writer_policy(self.settings.of_host(self.host))))

    def status(self) -> dict[str, Any]:
        return self.ask(lambda client: _query(client, self.host))

    # --------------------------------------------------------------------------------------------------------- waiting

    def wait_for(self, what: str, holds: Callable[[], object], seconds: float = 30.0) -> float:
        """Until `holds()`; gives the seconds it took. AssertionError names `what` and shows what
        the roles said last."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > seconds:
                last = {name: child.last_lines(6) for name, child in self.children.items()}
                raise AssertionError(f"not within {seconds:g} s: {what}\n{json.dumps(last, indent=1)}")
            time.sleep(LOOK_AGAIN_SECONDS)
        return time.monotonic() - began


def connect_database(url: str, answer_seconds_max: int = 30) -> pymysql.Connection[pymysql.cursors.DictCursor]:
    """A plain connection, autocommitting, to the database of a SQLAlchemy URL."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "",
        port=parts.port or 3306,
        user=parts.username or "",
        password=parts.password or "",
        database=parts.path.strip("/"),
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,
        connect_timeout=5,
        read_timeout=answer_seconds_max,
        cursorclass=pymysql.cursors.DictCursor,
    )


async def _query(client: Client, host: str) -> dict[str, Any]:
    found: dict[str, Any] = await writer_handle(client, host).query("status")
    return found


@dataclass
class Api:
    """The API's client: one connection for each request, so that a killed server is never a matter
    of the client's pool."""

    port: int
    timeout_seconds: float = 5.0

    def call(self, method: str, path: str, body: Any = None, *, key: str = "") -> tuple[int, dict[str, Any]]:
        """Status and JSON; OSError or http.client's errors when there is no answer."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout_seconds)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = json.loads(answer.read() or b"{}")
            return answer.status, content

    def answers(self) -> bool:
        try:
            return self.call("GET", "/healthz")[0] == 200
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def change(self, entity_id: str, event_type: str, payload: Any, *, key: str = "", entity_type: str = "unit") -> int:
        """Record a change; gives its id."""
        body = {"entity_type": entity_type, "entity_id": entity_id, "event_type": event_type, "payload": payload}
        status, answer = self.call("POST", "/api/changes", body, key=key)
        assert status == 202, (status, answer)
        change_id: int = answer["change_id"]
        return change_id

    def fate(self, key: str) -> dict[str, Any]:
        return self.call("GET", f"/api/changes/{quote(key)}")[1]
