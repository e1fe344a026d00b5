"""A private MariaDB in a folder: installed there on first use, bound to loopback, with least-privilege accounts.

`root` exists only behind the Unix socket, for the user of this machine who runs this. The application's account reads
and writes rows; the migration's account may also change tables. Committed rows survive `kill()`: every commit is on
disk.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pymysql

from oldhost_sync.stack.folder import kept_secrets
from oldhost_sync.stack.machine import StackError, need_program, pick_port
from oldhost_sync.stack.processes import Child, EmbeddedServer, SignalSafeEvent
from oldhost_sync.store.access import APP_RIGHTS, MIGRATION_RIGHTS

# In this order; newer versions name them mariadb_…
SYSTEM_SCRIPTS = ("system_tables.sql", "performance_tables.sql", "system_tables_data.sql")
INSTALL_SECONDS_MAX = 120
# With a small log, writes sometimes wait for half a second while pages are flushed to make room in it.
LOG_FILE_SIZE = "256M"
_USER = re.compile(r"[A-Za-z0-9_.-]+")


INSTALL_ADVICE = "install Debian's mariadb-server-core (or any MariaDB from 10.6 on), or set SYNC_DATABASE_URL"
# A Unix socket's path may have at most 107 bytes.
SOCKET_PATH_BYTES_MAX = 100
_NAME = re.compile(r"[a-z0-9_]{1,48}")


@dataclass(frozen=True)
class DatabaseUrls:
    """The same database for the two accounts."""

    app: str
    migration: str


class EmbeddedMariaDB(EmbeddedServer):
    """`with EmbeddedMariaDB(folder) as server: engine = create_engine(server.url)`.

    The port stays the same over `stop`, `kill` and `start`, so that clients can find the server again.
    """

    APP_USER = "sync_app"
    MIGRATION_USER = "sync_migration"

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        *,
        database: str = "oldhost_sync",
        buffer_pool_mib: int = 512,
        ended: SignalSafeEvent | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self._buffer_pool_mib = buffer_pool_mib
        self.database = _checked(database)
        super().__init__(ended)
        self.port = port or 0
        self._socket_folder: str | None = None
        self._socket = ""
        self._passwords: dict[str, str] = {}

    @property
    def url(self) -> str:
        """For the application's account."""
        return self.urls(self.database).app

    @property
    def migration_url(self) -> str:
        """For `oldhost-sync migrate`."""
        return self.urls(self.database).migration

    def urls(self, database: str) -> DatabaseUrls:
        """Addresses of `database` on this server."""
        return DatabaseUrls(*(self._url(user, database) for user in (self.APP_USER, self.MIGRATION_USER)))

    def start(self) -> None:
        """Install if need be, start, and return once it answers."""
        program = need_program("mariadbd", install=INSTALL_ADVICE)
        self.folder.mkdir(parents=True, exist_ok=True)
        made = {user: secrets.token_urlsafe(18) for user in (self.APP_USER, self.MIGRATION_USER)}
        self._passwords = kept_secrets(self.folder / "accounts.json", made)
        install_data_folder(program, self.folder / "data")
        self._make_socket_path()
        self._start_on_a_port(program)
        self.create_database(self.database)

    def stop(self) -> None:
        """An orderly end (SIGTERM, wait)."""
        if self._child is not None:
            self._child.stop(seconds=60)
        self._remove_socket_folder()

    def create_database(self, name: str) -> DatabaseUrls:
        """Create a database and give both accounts their rights in it; an existing one is not changed."""
        grants = ((self.APP_USER, APP_RIGHTS), (self.MIGRATION_USER, MIGRATION_RIGHTS))
        with self._root() as cursor:
            cursor.execute(
                f"CREATE DATABASE IF NOT EXISTS `{_checked(name)}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            )
            for user, rights in grants:
                cursor.execute(
                    f"CREATE USER IF NOT EXISTS {user}@'127.0.0.1' IDENTIFIED BY %s", (self._passwords[user],)
                )
                cursor.execute(f"GRANT {rights} ON `{_for_grant(name)}`.* TO {user}@'127.0.0.1'")
        return self.urls(name)

    # ------------------------------------------------------------------------------------------------------- starting

    def _start_on_a_port(self, program: str) -> None:
        wanted = self.port

        def child() -> Child:
            self.port = pick_port(wanted, "MariaDB")
            Path(self._socket).unlink(missing_ok=True)  # left behind by a server that was killed
            log = self.folder / "logs" / "mariadb.log"
            return Child("mariadb", self._command(program), log, ended=self._ended)

        self._start_child(child, self._answers, "Can't start server: Bind on TCP/IP port", pinned=bool(wanted))

    def _command(self, program: str) -> list[str]:
        return [
            program,
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            f"--tmpdir={own_temporary_folder(self.folder)}",
            f"--socket={self._socket}",
            f"--pid-file={self.folder / 'mariadb.pid'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--skip-ssl",  # on the loopback it only costs; MariaDB from 11.4 on makes certificates by itself
            "--skip-name-resolve",
            "--skip-log-bin",
            "--innodb-flush-log-at-trx-commit=1",
            # With a pool too small for the outbox's indexes, retention is three times as slow.
            f"--innodb-buffer-pool-size={self._buffer_pool_mib}M",
            f"--innodb-log-file-size={LOG_FILE_SIZE}",
            "--performance-schema=OFF",
            "--character-set-server=utf8mb4",
            "--collation-server=utf8mb4_bin",
            "--max-connections=200",
            "--default-time-zone=+00:00",
            *run_as_root(),
        ]

    def _answers(self) -> bool:
        if not Path(self._socket).exists():
            return False
        try:
            with self._root():
                return True
        except pymysql.MySQLError:
            return False

    @contextlib.contextmanager
    def _root(self) -> Iterator[pymysql.cursors.Cursor]:
        connection = pymysql.connect(
            unix_socket=self._socket,
            user=getpass.getuser(),
            charset="utf8mb4",
            connect_timeout=5,
            autocommit=True,
            ssl_disabled=True,
        )
        with connection, connection.cursor() as cursor:
            yield cursor

    # ---------------------------------------------------------------------------------------------- accounts and paths

    def _make_socket_path(self) -> None:
        beside = self.folder / "mariadb.sock"
        if len(os.fsencode(beside)) <= SOCKET_PATH_BYTES_MAX:
            self._socket = str(beside)
        elif self._socket_folder is None:
            self._socket_folder = tempfile.mkdtemp(prefix="sync-")
            self._socket = str(Path(self._socket_folder, "mariadb.sock"))

    def _remove_socket_folder(self) -> None:
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._socket_folder = None

    def _url(self, user: str, database: str) -> str:
        if not self.port:
            raise RuntimeError("the server was not started, so it has no address yet")
        return f"mysql+pymysql://{user}:{self._passwords[user]}@127.0.0.1:{self.port}/{_checked(database)}"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"a database's name has 1 to 48 of a-z, 0-9 and _, not {name!r}")
    return name


def _for_grant(name: str) -> str:
    """In GRANT the underscore is a wildcard."""
    return _checked(name).replace("_", r"\_")


# --------------------------------------------------------------------------------------------------- a new data folder


class InstallFailed(StackError):  # noqa: N818 - it says what happened
    """MariaDB's system tables could not be created: a problem of the machine (disk, permissions, a broken package)."""


def install_data_folder(program: str, data: Path) -> None:
    """Create `data` unless it exists, by the server's own `--bootstrap` mode; it appears complete or not at all.

    MariaDB's `mariadb-install-db` does the same, but needs `my_print_defaults`, which Debian's mariadb-server-core
    lacks, and spends most of its time on help texts and the sys schema. So the server gets its own SQL files: `root` by
    Unix socket for the current user of this machine, no anonymous account, no test database.
    """
    if data.exists():
        return
    unfinished = data.with_name(data.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True, mode=0o700)
    temporary = own_temporary_folder(data.parent)
    command = [
        program,
        "--no-defaults",
        "--bootstrap",
        f"--datadir={unfinished}",
        f"--tmpdir={temporary}",
        "--skip-log-bin",
        "--lc-messages=en_US",
        "--max-allowed-packet=8M",
        "--log-warnings=0",
        f"--innodb-log-file-size={LOG_FILE_SIZE}",
        *run_as_root(),
    ]
    done = subprocess.run(
        command, input=_system_sql(program), capture_output=True, timeout=INSTALL_SECONDS_MAX, check=False
    )
    if done.returncode != 0:
        raise InstallFailed(f"{program} could not set up {unfinished}: {done.stderr.decode(errors='replace').strip()}")
    unfinished.rename(data)


def own_temporary_folder(folder: Path) -> Path:
    """A starting server removes every `#sql…` file in its temporary folder, so two servers must never share one."""
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True, mode=0o700)
    return temporary


def run_as_root() -> list[str]:
    """MariaDB runs as root, as it must in a container, only with this option."""
    return ["--user=root"] if os.geteuid() == 0 else []


def _system_sql(program: str) -> bytes:
    user = getpass.getuser()
    if not _USER.fullmatch(user):
        raise InstallFailed(f"the user name {user!r} can't be a MariaDB account; run this as another user")
    folder = _script_folder(program)
    head = f"CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket='{user}';\nSET @skip_auth_anonymous=1;\n"
    return head.encode() + b"".join(_script(folder, name).read_bytes() for name in SYSTEM_SCRIPTS)


def _script_folder(program: str) -> Path:
    """Where this server keeps its SQL files: the folder above its character sets."""
    answer = subprocess.run(
        [program, "--no-defaults", "--verbose", "--help", *run_as_root()], capture_output=True, text=True, check=False
    )
    found = re.search(r"^character-sets-dir\s+(\S+)", answer.stdout, re.MULTILINE)
    if found is None:
        raise InstallFailed(f"{program} does not say where its files are: {answer.stderr.strip()[-300:]}")
    return Path(found[1]).parent


def _script(folder: Path, name: str) -> Path:
    for prefix in ("mysql_", "mariadb_"):
        if (folder / (prefix + name)).exists():
            return folder / (prefix + name)
    raise InstallFailed(f"{folder} has no mysql_{name}; install MariaDB's server package again")
