"""Lines, functions and files stay small, and a constant has one definition."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.project_files import ROOT, python_files

LINE_LENGTH_MAX = 120
# Files are usually under 400 lines; a test file may hold one scenario after the other.
FILE_LINES_MAX, TEST_FILE_LINES_MAX = 600, 600
# Without the docstring. Usual are under 25.
FUNCTION_LINES_MAX = 40

# Exceptions, each with its reason.
LONG_FILES = dict.fromkeys(
    ("migrations/versions/0001_first_schema.py", "oldhost_sync/store/tables.py"), "a list of all tables"
)
LONG_FUNCTIONS: dict[str, str] = {}
# What two files may both define, because neither may import the other.
DEFINED_TWICE = {"UNIT": "OldHost's word, and the store's word"}
PRODUCT = [path for path in python_files() if path.relative_to(ROOT).parts[0] not in {"tests", "bench", "migrations"}]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_linter_refuses_long_lines() -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert ruff["line-length"] == LINE_LENGTH_MAX
    assert "E501" not in ruff["lint"]["ignore"]


def test_no_file_has_got_away() -> None:
    long = []
    for path in python_files():
        most = FILE_LINES_MAX if path in PRODUCT else TEST_FILE_LINES_MAX
        if len(path.read_text().splitlines()) > most and relative(path) not in LONG_FILES:
            long.append(relative(path))
    assert long == []


def test_no_function_has_got_away() -> None:
    found = [
        f"{relative(path)}: {name}" for path in PRODUCT for name, lines in functions(path) if lines > FUNCTION_LINES_MAX
    ]
    assert [each for each in found if each not in LONG_FUNCTIONS] == []


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function's name and the lines of its body, without the docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            yield node.name, (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_a_constant_is_defined_once() -> None:
    """One with the same name and value in two files would be changed in one of them only."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in PRODUCT:
        if path.relative_to(ROOT).parts[0] not in ("oldhost_simulator", "examples"):  # other people's
            for name, value in constants(path):
                places[name.lstrip("_"), value].append(relative(path))
    twice = {name: files for (name, _), files in places.items() if len(files) > 1 and name not in DEFINED_TWICE}
    assert twice == {}


def constants(path: Path) -> Iterator[tuple[str, str]]:
    """The module's constants, each with the expression that gives its value; not its type variables."""
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and target.id.isupper() and len(target.id) > 1:
                yield target.id, ast.unparse(node.value)
