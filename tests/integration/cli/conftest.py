"""The whole stack for the command line: real servers and roles, started once; commands run in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from oldhost_sync.cli.main import run
from oldhost_sync.demo.facts import Admin
from oldhost_sync.settings import load_settings
from oldhost_sync.stack.folder import StackFolder
from oldhost_sync.stack.servers import Stack, StackPlan


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., CommandResult]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    settings = load_settings(
        api_bind="127.0.0.1:0", metrics_bind="127.0.0.1:0", temporal_metrics_bind="127.0.0.1:0",
        debounce_seconds=60, max_wait_seconds=600, request_timeout_seconds=2, settle_seconds=5,
    )  # fmt: skip
    plan = StackPlan(
        folder=folder, mariadb_port=0, temporal_port=0, temporal_ui_port=0, oldhost_port=0, oldhost_admin_port=0,
        latency_ms=5,
    )  # fmt: skip
    with StackFolder(folder) as held:
        stack = Stack(settings, plan, held)
        try:
            stack.start()
            yield stack
        finally:
            stack.stop()


@pytest.fixture
def admin(stack: Stack) -> Admin:
    """OldHost's admin port."""
    assert stack.addresses.oldhost_admin is not None
    return Admin(stack.addresses.oldhost_admin)


@pytest.fixture
def surroundings(stack: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """This process is told where the stack is, as another shell would be."""
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    for name, value in stack.role_environment().items():
        if name.startswith(("SYNC_", "TEMPORAL_")):
            monkeypatch.setenv(name, value)
    monkeypatch.setitem(os.environ, "COLUMNS", "200")


@pytest.fixture
def command(surroundings: None, capsys: pytest.CaptureFixture[str]) -> Command:
    """`command("status", "--json")` runs it and gives what it said."""

    def call(*arguments: str) -> CommandResult:
        capsys.readouterr()
        code = run(arguments)
        printed = capsys.readouterr()
        return CommandResult(code, printed.out, printed.err)

    return call
