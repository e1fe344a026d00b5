"""Imports run downward only, and what must be deterministic imports nothing that is not."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from oldhost_sync.stack.machine import need_program
from tests.architecture.project_files import ROOT

FIRST_PARTY = {"activities", "oldhost_sync", "workflows", "oldhost_simulator"}
# What a workflow must not touch: its history would not replay, or the sandbox refuses it.
FORBIDDEN_IN_WORKFLOWS = {
    *("httpx", "multiprocessing", "os", "pathlib", "pydantic_settings", "pymysql", "random", "requests", "secrets"),
    *("select", "socket", "sqlalchemy", "ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uuid"),
    *("oldhost_simulator", "fastapi", "typer", "rich"),
}
# Queries go by the present, and are no part of a history.
FOR_QUERIES_ONLY = {("clock.py", "time")}
FORBIDDEN_LAYERS_IN_WORKFLOWS = ("oldhost_sync.store", "oldhost_sync.oldhost", "oldhost_sync.settings")
PROGRAM_LINES_MAX = 12
CLOCKS = {("datetime", "now"), ("datetime", "utcnow"), ("date", "today"), ("asyncio", "run")}

workflow_files = sorted((ROOT / "workflows").glob("*.py"))
pure_files = workflow_files + sorted((ROOT / "oldhost_sync" / "policy").rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide what is imported"
            yield node.module or "", node


def test_import_contracts_hold() -> None:
    program = need_program("lint-imports", install="it comes with the development requirements")
    done = subprocess.run([program, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["worker", "starter"])
def test_a_program_at_the_top_only_calls_its_role(name: str) -> None:
    text = (ROOT / f"{name}.py").read_text()
    assert [module for module, _node in imported(ast.parse(text))] == [f"oldhost_sync.roles.{name}"]
    assert len(text.splitlines()) <= PROGRAM_LINES_MAX


@pytest.mark.parametrize("path", workflow_files, ids=lambda path: path.name)
def test_a_workflow_file_imports_nothing_that_would_not_replay(path: Path) -> None:
    names = [name for name, _node in imported(ast.parse(path.read_text()))]
    wrong = [name for name in names if name.split(".")[0] in FORBIDDEN_IN_WORKFLOWS]
    wrong = [name for name in wrong if (path.name, name) not in FOR_QUERIES_ONLY]
    wrong += [name for name in names if name.startswith(FORBIDDEN_LAYERS_IN_WORKFLOWS)]
    assert not wrong


@pytest.mark.parametrize("path", workflow_files, ids=lambda path: path.name)
def test_a_workflow_passes_all_its_own_imports_through_in_one_block(path: Path) -> None:
    tree = ast.parse(path.read_text())
    blocks = [
        node for node in ast.walk(tree) if isinstance(node, ast.With) and "imports_passed_through" in ast.dump(node)
    ]
    defines_a_workflow = "@workflow.defn" in path.read_text()
    passed = {id(inner) for block in blocks for inner in ast.walk(block)}
    ours = [(name, node) for name, node in imported(tree) if name.split(".")[0] in FIRST_PARTY]
    if defines_a_workflow:
        assert len(blocks) == 1
        assert [name for name, node in ours if id(node) not in passed] == []


@pytest.mark.parametrize("path", workflow_files, ids=lambda path: path.name)
def test_a_file_that_defines_a_workflow_imports_no_module_from_the_workflows_package(path: Path) -> None:
    """Temporal's sandbox gives each run a copy of such a module: a table with its classes as keys then has no row."""
    tree = ast.parse(path.read_text())
    copied = [node.lineno for name, node in imported(tree) if isinstance(node, ast.ImportFrom) and name == "workflows"]
    assert "@workflow.defn" not in path.read_text() or copied == []


@pytest.mark.parametrize("path", pure_files, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_time_is_an_argument_of_workflows_and_policy(path: Path) -> None:
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    read = [
        f"{function.value.id}.{function.attr}, line {function.lineno}"
        for function in calls
        if isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and (function.value.id, function.attr) in CLOCKS
    ]
    assert read == []


# Everything of the product but the store: statements for the tables are there (the embedded server's own are not about
# tables, and the driver kit's database and the test kit's stand for MariaDB).
WITHOUT_SQL = [
    path
    for folder in ("oldhost_sync", "activities", "workflows")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.is_relative_to(ROOT / "oldhost_sync" / "store")
    and not path.is_relative_to(ROOT / "oldhost_sync" / "stack")
    and path != ROOT / "oldhost_sync" / "driver_kit" / "memory_database.py"
    and path != ROOT / "oldhost_sync" / "testing" / "sqlite_statements.py"
]


@pytest.mark.parametrize("path", WITHOUT_SQL, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sql_is_in_the_store_only(path: Path) -> None:
    """No table is imported, and none of SQLAlchemy's words for a statement."""
    statements = {"select", "insert", "update", "delete", "text"}
    found = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if node.module == "oldhost_sync.store.tables" or (node.module == "sqlalchemy" and alias.name in statements)
    ]
    assert found == []


def test_no_module_of_the_policy_imports_itself_by_way_of_others() -> None:
    """Imports for type checkers count, too: a ring is one thing, however its parts are spread over files."""
    graph = grimp.build_graph("oldhost_sync")
    left = {module for module in graph.modules if module.startswith("oldhost_sync.policy")}
    while free := {module for module in left if not graph.find_modules_directly_imported_by(module) & left}:
        left -= free
    assert left == set()
