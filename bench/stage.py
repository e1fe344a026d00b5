"""Where measurements run: one private MariaDB and one Temporal dev server for the whole run, a new database and a new
simulator for each measurement. Everything is a child process that dies with us, on loopback, on free ports.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from temporalio.client import Client

from oldhost_sync.stack.machine import free_port
from oldhost_sync.stack.mariadb import DatabaseUrls, EmbeddedMariaDB
from oldhost_sync.stack.processes import Child
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.store.schema_migration import migrate

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS_MAX = 60.0


@dataclass
class SimulatedHost:
    """A simulator process and its admin port."""

    child: Child
    url: str
    admin: str

    def stats(self) -> dict[str, Any]:
        return self._call("GET", "/stats")

    def reset(self) -> None:
        self._call("POST", "/stats/reset")

    def journal(self, since: int = 0, wait_seconds: float = 0) -> list[dict[str, Any]]:
        """Entries from number `since` on, with `received_at` and `applied_at` in epoch seconds."""
        wait = f"&wait_seconds={wait_seconds:g}" if wait_seconds else ""
        entries: list[dict[str, Any]] = self._call("GET", f"/journal?since={since}{wait}")["entries"]
        return entries

    def act(self, action: str, **wanted: Any) -> dict[str, Any]:
        return self._call("POST", f"/actions/{action}", wanted)

    def fault(self, name: str, **wanted: Any) -> None:
        """Switch a fault on; it replaces the one of that label, which is the name by default."""
        self._call("POST", "/faults", {"name": name, **wanted})

    def fired(self, name: str) -> int:
        """How often faults of that name hit since they were switched on."""
        return sum(int(each["fired"]) for each in self._call("GET", "/faults")["faults"] if each["name"] == name)

    def no_faults(self) -> None:
        self._call("DELETE", "/faults")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.admin + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=40) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


@dataclass
class Stage:
    """`quick`: shorter and fewer rounds. Servers are started when first asked for."""

    quick: bool = False
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="oldhost-bench-")))
    say: Callable[[str], None] = lambda _text: None
    metrics_port: int = field(default_factory=free_port)  # Temporal's
    _mariadb: EmbeddedMariaDB | None = None
    _temporal: EmbeddedTemporal | None = None
    _count: int = 0
    _one_at_a_time: threading.RLock = field(default_factory=threading.RLock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._temporal is not None:
            self._temporal.stop()
        if self._mariadb is not None:
            self._mariadb.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -------------------------------------------------------------------------------------------------- servers

    @property
    def mariadb(self) -> EmbeddedMariaDB:
        if self._mariadb is None:
            self._mariadb = EmbeddedMariaDB(self.folder / "mariadb")
            self._mariadb.start()
        return self._mariadb

    @property
    def temporal(self) -> EmbeddedTemporal:
        if self._temporal is None:
            metrics = f"--metrics-port={self.metrics_port}"
            self._temporal = EmbeddedTemporal(self.folder / "temporal", options=(metrics,))
            self._temporal.start()
        return self._temporal

    def open_workflows(self) -> int:
        """How many workflows are open; those that a measurement leaves behind burden the workers of all later ones."""
        return 0 if self._temporal is None else asyncio.run(_open_workflows(self._temporal.address))

    # ------------------------------------------------------------------------------------- one measurement's parts

    def name(self, prefix: str) -> str:
        """A name that nothing of this run had before."""
        with self._one_at_a_time:
            self._count += 1
            return f"{prefix}{self._count}"

    def database(self, *hosts: str) -> DatabaseUrls:
        """A new, migrated database."""
        with self._one_at_a_time:  # Alembic has one context for the whole process
            urls = self.mariadb.create_database(self.name("bench_"))
            migrate(urls.migration, hosts or ("oldhost",))
            return urls

    @contextmanager
    def simulator(self, latency_ms: float, *, ban_seconds: float = 900) -> Iterator[SimulatedHost]:
        name = self.name("simulator")
        command = [
            sys.executable,
            "-m",
            "oldhost_simulator",
            "--port",
            "0",
            "--admin-port",
            "0",
            "--latency-ms",
            f"{latency_ms:g}",
            "--ban-seconds",
            f"{ban_seconds:g}",
            "--state-file",
            str(self.folder / f"{name}.jsonl"),
        ]
        child = Child(name, command, self.folder / f"{name}.log", folder=ROOT)
        child.start()
        try:
            child.wait_until(lambda: child.said().endswith("\n"), READY_SECONDS_MAX)
            addresses = json.loads(child.said().splitlines()[0])
            yield SimulatedHost(child, addresses["oldhost"], addresses["admin"])
        finally:
            child.stop()


async def _open_workflows(address: str) -> int:
    client = await Client.connect(address)
    return (await client.count_workflows('ExecutionStatus = "Running"')).count
