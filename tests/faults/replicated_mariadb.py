"""Two MariaDB servers on loopback, one replicating the other, and an address that leads to whichever is the primary.

Semi-synchronous, so that a commit is answered only once the replica has it: what the primary's death leaves behind is
on the replica.
`stop_replicating` makes it lag for good, as an asynchronous replica does in its primary's last seconds.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any, Self

from oldhost_sync.stack.mariadb import DatabaseUrls, EmbeddedMariaDB
from tests.faults.database_proxy import DatabaseProxy

REPLICATION = ("replicator", "a password of the tests")
CAUGHT_UP_SECONDS_MAX = 20.0


class ReplicatedServer(EmbeddedMariaDB):
    """One server with a binary log. `server_id`: its own in the topology."""

    def __init__(self, folder: Path, server_id: int) -> None:
        super().__init__(folder)
        self._server_id = server_id

    def _command(self, program: str) -> list[str]:
        command = [option for option in super()._command(program) if option != "--skip-log-bin"]
        return [
            *command,
            f"--server-id={self._server_id}",
            f"--log-bin={self.folder / 'binlog'}",
            "--binlog-format=ROW",
            "--log-slave-updates=ON",
            "--sync-binlog=1",
            "--rpl-semi-sync-slave-enabled=ON",
            # Its acknowledgement is waited for this long; then the server goes on without, as asynchronous ones always
            # do.
            "--rpl-semi-sync-master-timeout=2000",
        ]

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._root() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())


class ReplicatedMariaDB:
    """`with ReplicatedMariaDB(folder) as servers: …; servers.kill_primary(); servers.promote()`."""

    def __init__(self, folder: Path) -> None:
        self._primary = ReplicatedServer(folder / "primary", 1)
        self.replica = ReplicatedServer(folder / "replica", 2)
        self._stack = contextlib.ExitStack()
        self._demoted = False

    def __enter__(self) -> Self:
        self._stack.enter_context(self._primary)
        # The same accounts on both, as after any fail-over.
        self.replica.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._primary.folder / "accounts.json", self.replica.folder / "accounts.json")
        self._stack.enter_context(self.replica)
        self.address = self._stack.enter_context(DatabaseProxy(self._primary.port))
        self._replicate()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def create_database(self, name: str) -> DatabaseUrls:
        """By the address that follows the primary."""
        urls = self._primary.create_database(name)
        return DatabaseUrls(self.address.url(urls.app), self.address.url(urls.migration))

    def _replicate(self) -> None:
        user, password = REPLICATION
        self._primary.execute(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY %s", password)
        self._primary.execute(f"GRANT REPLICATION SLAVE ON *.* TO {user}@'127.0.0.1'")
        (position,) = self._primary.execute("SELECT @@gtid_binlog_pos")
        self.replica.execute("RESET MASTER")
        self.replica.execute("SET GLOBAL gtid_slave_pos = %s", position[0])
        self.replica.execute(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %s, MASTER_USER = %s, MASTER_PASSWORD = %s, "
            "MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_SSL = 0",
            self._primary.port,
            user,
            password,
        )
        self.replica.execute("START SLAVE")
        self._primary.execute("SET GLOBAL rpl_semi_sync_master_enabled = ON")

    def catch_up(self) -> None:
        """Until the replica has all that the primary has."""
        (position,) = self._primary.execute("SELECT @@gtid_binlog_pos")
        (done,) = self.replica.execute("SELECT MASTER_GTID_WAIT(%s, %s)", position[0], CAUGHT_UP_SECONDS_MAX)
        assert done[0] == 0, "the replica did not catch up"

    def stop_replicating(self) -> None:
        """From now on the primary's commits are its own."""
        self.catch_up()
        self._primary.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        self.replica.execute("STOP SLAVE")

    def kill_primary(self) -> None:
        self._primary.kill()

    def demote_primary(self) -> None:
        """It refuses writes and lives on, with all its connections."""
        self._primary.execute("SET GLOBAL read_only = ON")
        self.catch_up()
        self._demoted = True

    def statements_at_old_primary(self) -> list[str]:
        """What is being executed there."""
        rows = self._primary.execute("SELECT COALESCE(info, '') FROM information_schema.processlist")
        return [str(info) for (info,) in rows]

    def promote(self) -> None:
        """The replica does all it has received, and is the primary from then on."""
        until = time.monotonic() + CAUGHT_UP_SECONDS_MAX
        while "waiting" not in self._applier() and time.monotonic() < until:
            time.sleep(0.05)
        self.replica.execute("STOP SLAVE")
        self.replica.execute("RESET SLAVE ALL")
        self.address.lead_to(self.replica.port)
        if not self._demoted:
            self.address.cut_all()

    def _applier(self) -> str:
        rows = self.replica.execute("SELECT state FROM information_schema.processlist WHERE command = 'Slave_SQL'")
        return str(rows[0][0]).lower() if rows else "waiting: stopped"
