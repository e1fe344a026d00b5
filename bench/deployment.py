"""The product as it is deployed: API, relay and worker as processes of their own, for one host of its own.

Roles get everything by their environment, as in any deployment. The writer is started, asked and ended by a client
here.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy.engine import Engine
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError

from bench.actions import actions
from bench.far_database import FarDatabase
from bench.stage import ROOT, SimulatedHost, Stage
from oldhost_sync.settings import Settings, load_settings
from oldhost_sync.stack.machine import free_port
from oldhost_sync.stack.processes import Child
from oldhost_sync.store.engine import create_engine
from oldhost_sync.temporal.client import DATA_CONVERTER, start_writer, writer_handle, writer_policy

T = TypeVar("T")
READY_SECONDS_MAX = 60.0
# So many may end between the look into MariaDB and the one into the writer.
UNREAD_MAX = 200
KILLED = "signal SIGKILL"  # by a measurement, on purpose
COMMANDS = {
    "worker": [sys.executable, str(ROOT / "worker.py")],
    "relay": [sys.executable, "-m", "oldhost_sync.cli", "relay"],
    "api": [sys.executable, "-m", "oldhost_sync.cli", "api"],
    "plain loop": [sys.executable, "-m", "bench.rivals.plain_loop"],
    "queue worker": [sys.executable, "-m", "bench.rivals.queue_worker"],
    "naive workflow": [sys.executable, "-m", "bench.rivals.naive_worker"],
}
RIVALS = ("naive workflow", "plain loop", "queue worker")


def rivals(stage: Stage) -> tuple[str, ...]:
    """Those that are measured beside the product: a quick run has no time for them."""
    return () if stage.quick else RIVALS


@dataclass(frozen=True, slots=True)
class Written:
    """Of a writer's histories, and Temporal's actions by type."""

    events: int
    size: int
    actions: Counter[str]

    def since(self, before: Written) -> Written:
        return Written(self.events - before.events, self.size - before.size, self.actions - before.actions)


@dataclass
class Deployment:
    """`with Deployment(stage, simulator) as product: product.start("worker"); product.start_writer()`."""

    stage: Stage
    simulator: SimulatedHost
    given: dict[str, Any] = field(default_factory=dict)
    way: FarDatabase | None = None  # of the processes to MariaDB
    host: str = ""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    children: dict[str, Child] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.host = self.host or self.stage.name("host-")
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        self.settings: Settings = load_settings(
            _env_file=None,
            database_url=self.stage.database(self.host, *self.given.get("oldhost_urls", ())).app,
            oldhost_url=self.simulator.url,
            host=self.host,
            api_bind=f"127.0.0.1:{free_port()}",
            api_tokens=f"bench:ops:{digest},app:app:{digest[::-1]}",
            # One token makes everybody's load. Requests and changes keep their quotas: the figures hold with them.
            **({"quota_emergencies": 0} | self.given),
        )
        self.engine: Engine = create_engine(self.settings.need_database_url(), pool_size=4)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self.engine.dispose()

    @property
    def api_url(self) -> str:
        return f"http://{self.settings.api_bind}"

    # ---------------------------------------------------------------------------------------------------- processes

    def start(self, role: str, name: str = "") -> Child:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SYNC_")}
        environment |= self.settings.to_environment() | {"TEMPORAL_ADDRESS": self.stage.temporal.address}
        environment |= {"PYTHONPATH": str(ROOT), "BENCH_FOLDER": str(self.stage.folder)}
        if self.way is not None:
            environment["SYNC_DATABASE_URL"] = self.way.url(self.settings.need_database_url())
        name = name or role
        log = self.stage.folder / f"{self.host}-{name}.log"
        child = Child(name, COMMANDS[role], log, environment, folder=Path(ROOT))
        child.start()
        self.children[name] = child
        return child

    def stop(self, name: str) -> None:
        self.children.pop(name).stop(30)

    def end(self) -> None:
        """Stop all roles, and terminate the writer. A relay would start it again, and the workers of all later
        measurements would serve it: so it is terminated when only workers are left.
        """
        for name in [name for name in reversed(self.children) if not name.startswith("worker")]:
            self.stop(name)
        self.terminate_writer()
        for name in reversed(list(self.children)):
            self.stop(name)

    def pids(self) -> dict[str, int]:
        """Of everything that works for this host."""
        found = {name: child.pid for name, child in self.children.items() if child.running}
        return found | {"mariadb": self.stage.mariadb.pid, "temporal": self.stage.temporal.pid}

    # ---------------------------------------------------------------------------------------------------- the writer

    def start_writer(self) -> None:
        self.ask(lambda client: start_writer(client, self.host, writer_policy(self.settings.of_host(self.host))))

    def terminate_writer(self) -> None:
        async def terminate(client: Client) -> None:
            await writer_handle(client, self.host).terminate("measured")

        try:
            self.ask(terminate)
        except RPCError:
            return  # never started, or ended

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(lambda client: writer_handle(client, self.host).query("status"))
        return found

    def written(self) -> Written:
        """What all runs of the writer have written into their histories so far, and what Temporal counted."""
        events = [event for history in self.histories() for event in history.events]
        counted = actions(self.stage.metrics_port)
        return Written(len(events), sum(event.ByteSize() for event in events), counted)

    async def _histories(self, client: Client) -> list[WorkflowHistory]:
        """Of all runs, newest first."""
        handle = writer_handle(client, self.host)
        run_id: str | None = (await handle.describe()).run_id
        found: list[WorkflowHistory] = []
        while run_id:
            history = await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()
            found.append(history)
            started = history.events[0]
            assert started.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
            run_id = started.workflow_execution_started_event_attributes.continued_execution_run_id or None
        return found

    def run_id(self) -> str:
        """Of the writer's current run."""
        return self.ask(self._run_id)

    async def _run_id(self, client: Client) -> str:
        return (await writer_handle(client, self.host).describe()).run_id or ""

    def histories(self) -> list[WorkflowHistory]:
        return self.ask(self._histories)

    def ask(self, act: Callable[[Client], Awaitable[T]]) -> T:
        """Run `act` with a client of its own."""
        return asyncio.run(self._ask(act))

    async def _ask(self, act: Callable[[Client], Awaitable[T]]) -> T:
        client = await Client.connect(self.stage.temporal.address, data_converter=DATA_CONVERTER)
        return await act(client)

    # ---------------------------------------------------------------------------------------------------- the outbox

    def unrelayed(self) -> int:
        """Changes that nobody was handed yet."""
        return self._count("relayed_at IS NULL")

    def unprocessed(self) -> int:
        """Changes without a fate."""
        return self._count("processed_at IS NULL")

    def _count(self, condition: str) -> int:
        query = f"SELECT COUNT(*) FROM outbox_events WHERE host = %s AND {condition}"
        with self.engine.connect() as connection:
            return int(connection.exec_driver_sql(query, (self.host,)).scalar_one())

    # ------------------------------------------------------------------------------------------------------ waiting

    def wait_applied(self, count: int, seconds: float = READY_SECONDS_MAX) -> None:
        """Until OldHost has applied `count` operations."""
        self.wait_for(f"{count} operations applied", lambda: self.simulator.stats()["applied"] >= count, seconds)

    def wait_backlog_read(self) -> None:
        """Until the writer, which reads its backlog while it sends, has all of it."""
        self.wait_for("the backlog read by the writer", lambda: self._unread() < UNREAD_MAX)

    def _unread(self) -> int:
        status = self.status()
        return self.unprocessed() - int(status["waiting"]) - int(status["in_flight"])

    def wait_for(self, what: str, holds: Callable[[], bool], seconds: float = READY_SECONDS_MAX) -> None:
        """Until `holds()`; TimeoutError names `what`, and a dead role its log."""
        deadline = time.monotonic() + seconds
        while not holds():
            for child in self.children.values():
                if not child.running and child.how_it_ended() != KILLED:
                    raise RuntimeError(f"{child.name} ended: {child.last_lines()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not in {seconds:g} s: {what}")
            time.sleep(0.05)
