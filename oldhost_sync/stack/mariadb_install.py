"""A new MariaDB data folder, by the server's own `--bootstrap` mode.

MariaDB's `mariadb-install-db` does the same, but needs `my_print_defaults`, which Debian's mariadb-server-core lacks,
and spends most of its time on help texts and the sys schema. So the server gets its own SQL files: `root` by Unix
socket for the current user of this machine, no anonymous account, no test database.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from pathlib import Path

from oldhost_sync.stack.errors import StackError

# In this order; newer versions name them mariadb_…
SYSTEM_SCRIPTS = ("system_tables.sql", "performance_tables.sql", "system_tables_data.sql")
INSTALL_SECONDS_MAX = 120
# With a small log, writes sometimes wait for half a second while pages are flushed to make room in it.
LOG_FILE_SIZE = "256M"
_USER = re.compile(r"[A-Za-z0-9_.-]+")


class InstallFailed(StackError):  # noqa: N818 - it says what happened
    """MariaDB's system tables could not be created: a problem of the machine (disk, permissions, a broken package)."""


def install_data_folder(program: str, data: Path) -> None:
    """Create `data` unless it exists; it appears complete or not at all."""
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
