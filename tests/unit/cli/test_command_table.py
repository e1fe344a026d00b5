"""The list of commands says of each what its own help says, and showing it loads no command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from oldhost_sync.cli.command_table import COMMANDS
from oldhost_sync.cli.main import app
from tests.architecture.project_files import ROOT

LOADED = """
import sys
from oldhost_sync.cli.main import run
run({arguments})
print([name for name in ("sqlalchemy", "temporalio", "pydantic", "fastapi") if name in sys.modules])
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_commands_own_help_says(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name].help


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_the_list_of_commands_needs_no_library_of_a_server(arguments: list[str]) -> None:
    source = LOADED.format(arguments=arguments)
    shown = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_status_loads_nothing_of_the_apis_server(tmp_path: Path) -> None:
    """FastAPI alone takes longer to load than the rest."""
    source = (
        "import sys; from oldhost_sync.cli.main import run\n"
        "try: run(['status'])\n"
        "finally: print([name for name in ('fastapi', 'starlette', 'prometheus_client') if name in sys.modules])"
    )
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    shown = subprocess.run(
        [sys.executable, "-c", source], check=False, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=60
    )
    assert "SYNC_DATABASE_URL is not set" in shown.stderr
    assert shown.stdout.splitlines()[-1] == "[]"


def test_the_roles_are_the_commands_that_take_no_host() -> None:
    assert {name for name, entry in COMMANDS.items() if entry.is_role} == {
        "up",
        "api",
        "relay",
        "worker",
        "migrate",
        "simulator",
    }
