"""The lock files: everything pinned, everything hashed, nothing said about where it came from."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.project_files import ROOT, python_files
from tests.architecture.test_imports import imported

LOCKS = ("requirements.txt", "requirements-dev.txt", "requirements-build.txt")
PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;]+)(?: ; .+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")


def pinned(name: str) -> dict[str, str]:
    matches = (PINNED.match(line) for line in (ROOT / name).read_text().splitlines())
    return {match[1]: match[2] for match in matches if match}


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[<>=!;\[ ]", requirement)[0].lower() for requirement in requirements]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_pins_hashes_and_comments_only(name: str) -> None:
    lines = Path(ROOT, name).read_text().splitlines()
    other = [line for line in lines if line and not (PINNED.match(line) or HASH.match(line) or line.lstrip()[0] == "#")]
    assert other == []
    assert not [line for line in lines if "://" in line or line.startswith("-")]


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_is_followed_by_a_hash(name: str) -> None:
    lines = Path(ROOT, name).read_text().splitlines()
    assert all(HASH.match(after) for line, after in itertools.pairwise(lines) if PINNED.match(line))


def test_what_runs_in_production_is_what_was_tested() -> None:
    production, development = pinned(LOCKS[0]) | pinned(LOCKS[2]), pinned(LOCKS[1])
    assert {name: development.get(name) for name in production} == production


def test_every_requirement_of_the_project_is_locked() -> None:
    wanted = project()
    extras = [name for group in wanted["optional-dependencies"].values() for name in names(group)]
    assert [name for name in names(wanted["dependencies"]) if name not in pinned(LOCKS[0])] == []
    assert [name for name in extras if name not in pinned(LOCKS[1])] == []


def test_what_builds_the_package_is_locked() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert names(needed) == sorted(pinned(LOCKS[2]))


def test_the_image_can_send_traces() -> None:
    """Nobody installs an extra in a running container."""
    assert [name for name in names(project()["optional-dependencies"]["traces"]) if name not in pinned(LOCKS[0])] == []


# What comes with a requirement by its nature, and import names that differ from the package's.
COMES_WITH = {
    "google": "temporalio",  # its payloads are protobuf messages
    "h11": "httpx",
    "opentelemetry": "opentelemetry-sdk",
    "starlette": "fastapi",
    "pydantic_core": "pydantic",
    "dotenv": "pydantic-settings",
    "yaml": "pyyaml",
}
OURS = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()} | {
    "bench",
    "deploy",
}


def test_everything_that_is_imported_is_a_requirement() -> None:
    wanted = project()
    declared = {name for group in wanted["optional-dependencies"].values() for name in names(group)}
    declared |= set(names(wanted["dependencies"]))
    ours = (path for path in python_files() if ROOT / "examples" not in path.parents)  # those name their own
    trees = (ast.parse(path.read_text()) for path in ours)
    roots = {name.split(".")[0] for tree in trees for name, _node in imported(tree)}
    foreign = roots - OURS - set(sys.stdlib_module_names)
    assert sorted(name for name in foreign if COMES_WITH.get(name, name).replace("_", "-") not in declared) == []
