"""Three MariaDB servers on loopback as a Galera cluster, and an address that leads to the one that is written to.

All start from copies of one data folder, so that none has to send its state to another (which needs more programs).
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from oldhost_sync.stack.machine import pick_port
from oldhost_sync.stack.mariadb import DatabaseUrls, EmbeddedMariaDB
from tests.faults.database_proxy import DatabaseProxy

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")
NODES = 3
JOINED_SECONDS_MAX = 60.0


class GaleraNode(EmbeddedMariaDB):
    """One server of the cluster. `joins`: the addresses of the others; empty for a server by itself."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self.name = name
        self.group_port = pick_port(0, "Galera")
        self.options: list[str] = []
        self.joined = False

    def create_database(self, name: str) -> DatabaseUrls:
        """Nothing to do where the others have it already."""
        return self.urls(name) if self.joined else super().create_database(name)

    def has_state(self, uuid: str, position: str) -> None:
        """Its data folder is what the cluster `uuid` has at `position`."""
        saved = f"version: 2.1\nuuid: {uuid}\nseqno: {position}\nsafe_to_bootstrap: 0\n"
        (self.folder / "data" / "grastate.dat").write_text(f"# GALERA saved state\n{saved}")

    def join(self, others: list[GaleraNode]) -> None:
        """From its next start on; with no others it begins a cluster."""
        addresses = ",".join(f"127.0.0.1:{other.group_port}" for other in others)
        self.joined = bool(others)
        provider = {
            "gmcast.listen_addr": f"tcp://127.0.0.1:{self.group_port}",
            "ist.recv_addr": f"127.0.0.1:{pick_port(0, 'Galera')}",
            "evs.keepalive_period": "PT0.5S",
            "evs.suspect_timeout": "PT2S",
            "evs.inactive_timeout": "PT4S",
            "evs.install_timeout": "PT4S",
        }
        self.options = [
            "--wsrep-on=ON",
            f"--wsrep-provider={PROVIDER}",
            "--wsrep-cluster-name=tests",
            f"--wsrep-cluster-address=gcomm://{addresses}",
            f"--wsrep-node-name={self.name}",
            "--wsrep-node-address=127.0.0.1",
            "--wsrep-provider-options=" + "; ".join(f"{name}={value}" for name, value in provider.items()),
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
        ]

    def _command(self, program: str) -> list[str]:
        return [*super()._command(program), *self.options]

    def _answers(self) -> bool:
        return super()._answers() and (not self.options or self.status("ready") == "ON")

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._root() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())

    def status(self, name: str) -> str:
        rows = self.execute(f"SHOW GLOBAL STATUS LIKE 'wsrep_{name}'")
        return str(rows[0][1]) if rows else ""


class GaleraCluster:
    """`with GaleraCluster(folder) as cluster: …; cluster.isolate_first()`."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [GaleraNode(folder / f"node{number}", f"node{number}") for number in range(NODES)]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        first, *others = self.nodes
        with first:
            pass
        for other in others:
            shutil.copytree(first.folder, other.folder, ignore=shutil.ignore_patterns("logs", "*.sock", "tmp"))
        first.join([])
        self._stack.enter_context(first)
        for other in others:
            other.has_state(first.status("cluster_state_uuid"), first.status("last_committed"))
            other.join([first])
            self._stack.enter_context(other)
        self.wait_for(lambda: all(node.status("local_state_comment") == "Synced" for node in self.nodes))
        self.address = self._stack.enter_context(DatabaseProxy(first.port))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait_for(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + JOINED_SECONDS_MAX
        while not done():
            assert time.monotonic() < until, [node.status("local_state_comment") for node in self.nodes]
            time.sleep(0.1)

    def create_database(self, name: str) -> DatabaseUrls:
        urls = self.nodes[0].create_database(name)
        return DatabaseUrls(self.address.url(urls.app), self.address.url(urls.migration))

    def isolate_first(self) -> None:
        """It hears from no other server, and lives on with all its connections; the address leads to the next."""
        self.nodes[0].execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")
        self.wait_for(lambda: self.nodes[0].status("cluster_status") != "Primary")
        second = self.nodes[1]
        self.wait_for(lambda: second.status("ready") == "ON" and second.status("cluster_size") == str(NODES - 1))
        self.address.lead_to(second.port)

    def statements_at_first(self) -> list[str]:
        """What is being executed there."""
        return [str(row[7]) for row in self.nodes[0].execute("SHOW FULL PROCESSLIST")]
