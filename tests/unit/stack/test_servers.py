"""What the stack gives its roles."""

from __future__ import annotations

from pathlib import Path

from oldhost_sync.settings import load_settings
from oldhost_sync.stack.folder import StackFolder
from oldhost_sync.stack.servers import Stack, StackPlan


def test_roles_keep_their_compiled_modules_so_that_only_the_first_start_compiles_them(tmp_path: Path) -> None:
    given = {"PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}
    with StackFolder(tmp_path / "var") as folder:
        stack = Stack(load_settings(_env_file=None), StackPlan(folder=folder.path), folder, given)
        environment = stack.role_environment()
    assert "PYTHONDONTWRITEBYTECODE" not in environment
    assert environment["LANG"] == "C.UTF-8"
