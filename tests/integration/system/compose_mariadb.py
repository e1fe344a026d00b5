"""MariaDB as docker-compose.yml starts it: its options, its accounts; and a `docker` that runs programs beside it.

There is no container: a path in it is a folder here, and root by the server's socket is whoever runs the tests.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from oldhost_sync.stack.machine import need_program
from oldhost_sync.stack.mariadb import DatabaseUrls
from tests.conformance.private_mariadb import PrivateMariaDB

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DATABASE = "oldhost_sync"
PASSWORDS = {"SYNC_APP_PASSWORD": "app1", "SYNC_MIGRATION_PASSWORD": "migration1"}
SECONDS_MAX = 120
CLIENTS = ("mariadb", "mariadb-dump")

DOCKER = """\
import json, os, sys
where = json.loads({where!r})
words = sys.argv[1:]
if words[:4] == ["compose", "exec", "-T", "mariadb"]:
    for inside, here in where["paths"].items():
        words = [word.replace(inside, here) for word in words]
    os.execvp(words[4], words[4:])
assert words[:2] in (["compose", "stop"], ["compose", "up"]), words
assert set(words[2:]) - {{"-d"}} <= set(where["services"]), words
"""


class ComposeMariaDB(PrivateMariaDB):
    """`with ComposeMariaDB(folder) as server: server.types(commands, folder)`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.database = DATABASE

    def _command(self, program: str) -> list[str]:
        return [*super()._command(program), *COMPOSE["services"]["mariadb"]["command"]]

    def create_database(self, name: str) -> DatabaseUrls:
        """As the image's first start does it."""
        with self._root() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS `{name}`")
            for statement in filter(str.strip, accounts().split(";")):
                cursor.execute(statement)
        self._passwords = {
            "sync_app": PASSWORDS["SYNC_APP_PASSWORD"],
            "sync_migration": PASSWORDS["SYNC_MIGRATION_PASSWORD"],
        }
        return self.compose_urls()

    def compose_urls(self) -> DatabaseUrls:
        """The addresses that compose gives to the roles and to the migration, but for host and port."""
        roles = COMPOSE["services"]
        told = (filled(roles[role]["environment"]["SYNC_DATABASE_URL"]) for role in ("api", "migrate"))
        return DatabaseUrls(*(url.replace("@mariadb:3306/", f"@127.0.0.1:{self.port}/") for url in told))

    def types(self, commands: list[str], folder: Path) -> str:
        """What a person types, in one shell, in this folder; returns what it printed."""
        programs = folder / "programs"
        programs.mkdir(exist_ok=True)
        for name in CLIENTS:
            real = need_program(name, install="install Debian's mariadb-client")
            _write(programs / name, f'#!/bin/sh\nexec {real} --no-defaults --socket={self._socket} "$@"\n')
        paths = {"/var/lib/mysql": str(self.folder / "data"), "/tmp/binlogs": str(folder / "binlogs")}
        where = json.dumps({"paths": paths, "services": list(COMPOSE["services"])})
        _write(programs / "docker", f"#!{sys.executable}\n" + DOCKER.format(where=where))
        done = subprocess.run(
            ["bash", "-e"],
            input="\n".join(commands),
            cwd=folder,
            env={"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout


def filled(text: str) -> str:
    """As compose fills `${NAME:?…}` in."""
    return re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: PASSWORDS[found[1]], text)


def accounts() -> str:
    """What the image runs at the first start of a server."""
    return filled(COMPOSE["configs"]["accounts"]["content"]).replace("'root'", f"'{getpass.getuser()}'")


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
