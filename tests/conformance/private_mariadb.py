"""A MariaDB server of the tests' own: a folder, a socket, no network; gone with the test session."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
from sqlalchemy.engine import Engine

from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.tables import metadata

SHARE = Path("/usr/share/mysql")
START_SECONDS_MAX = 30


class PrivateMariaDB:
    """`fresh_database` makes an empty database with the product's tables; its URL is for other processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "s.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        data = self.folder / "data"
        if not data.exists():
            self._bootstrap(data)
        self._process = subprocess.Popen([*self._command(data), f"--socket={self.socket}"], stderr=subprocess.DEVNULL)
        self._wait_until_up()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)
        self._process = None

    def url(self, database: str) -> str:
        return f"mysql+pymysql://root@localhost/{database}?unix_socket={self.socket}"

    def fresh_database(self, *, pool_size: int = 8) -> tuple[Engine, str]:
        database = f"t_{uuid.uuid4().hex[:12]}"
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        engine = create_engine(self.url(database), pool_size=pool_size)
        metadata.create_all(engine)
        return engine, database

    def connect(self) -> pymysql.Connection:
        return pymysql.connect(unix_socket=str(self.socket), user="root", autocommit=True)

    def _command(self, data: Path) -> list[str]:
        found = shutil.which("mariadbd", path="/usr/sbin:/usr/bin:/usr/local/sbin")
        assert found, "mariadbd is not installed (Debian: mariadb-server-core)"
        return [
            found, "--no-defaults", "--user=root", f"--datadir={data}", "--skip-networking",
            f"--pid-file={self.folder / 'pid'}", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=1", "--performance-schema=OFF", "--skip-log-bin",
        ]  # fmt: skip

    def _bootstrap(self, data: Path) -> None:
        data.mkdir(parents=True)
        script = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n" + "".join(
            (SHARE / name).read_text() for name in ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
        )
        subprocess.run([*self._command(data), "--bootstrap"], input=script.encode(), capture_output=True, check=True)

    def _wait_until_up(self) -> None:
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.connect().close()
                return
            except pymysql.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)


@contextmanager
def private_mariadb() -> Iterator[PrivateMariaDB]:
    with tempfile.TemporaryDirectory(prefix="oldhost-sync-db-") as folder:
        server = PrivateMariaDB(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
