"""`make client`: the wheel that applications install, `oldhost-sync-client`, into dist/.

It has what an application imports from `oldhost_sync`, and the modules that this needs: one top-level name, and
SQLAlchemy as the only package that it depends on (and httpx, if it is to speak HTTP; pytest, for its test kit). Its
files are the product's own, so both may be installed together in one version.
"""

from __future__ import annotations

import ast
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from setuptools.build_meta import build_wheel  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "oldhost_sync"
# What applications import: the names of the package itself, which loads their modules when they are used.
_OF_STORE = ("intake.batch_recorder", "transactions", "autogenerate")
PUBLIC = (PACKAGE, f"{PACKAGE}.http_client", f"{PACKAGE}.testing", *(f"{PACKAGE}.store.{name}" for name in _OF_STORE))
DATA = (f"{PACKAGE}/py.typed", "LICENSE")
NEEDS = ("sqlalchemy",)

_PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "oldhost-sync-client"
version = "{version}"
description = "Records changes for OldHost Sync in an application's own transaction."
requires-python = "{python}"
license = "{license}"
license-files = ["LICENSE"]
dependencies = {dependencies}

[project.optional-dependencies]
http = {http}  # of `SyncClient`

[tool.setuptools]
packages = {packages}

[tool.setuptools.package-data]
"*" = ["py.typed"]
"""


def path_of(module: str) -> Path | None:
    """The file of a module of ours; None: it is not ours."""
    path = ROOT / module.replace(".", "/")
    return next((each for each in (path / "__init__.py", path.with_suffix(".py")) if each.is_file()), None)


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, anywhere but for type checking."""
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        nodes += ast.iter_child_nodes(node)


def modules() -> dict[str, Path]:
    """All modules of the client, with the packages that hold them."""
    found: dict[str, Path] = {}
    names = list(PUBLIC)
    while names:
        name = names.pop()
        path = path_of(name)
        if path is None or name in found:
            continue
        found[name] = path
        names += [name.rpartition(".")[0], *imported(path)]
    return found


def write(folder: Path) -> None:
    """The client's files and their pyproject.toml."""
    files = modules()
    for path in [*files.values(), *(ROOT / name for name in DATA)]:
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [each for each in project["dependencies"] if each.startswith(NEEDS)]
    text = _PROJECT.format(
        version=project["version"],
        python=project["requires-python"],
        license=project["license"],
        dependencies=needs,
        http=list(project["optional-dependencies"]["http"]),
        packages=sorted(name for name, path in files.items() if path.name == "__init__.py"),
    )
    (folder / "pyproject.toml").write_text(text)


def build(into: Path) -> Path:
    """The wheel's file."""
    into.mkdir(parents=True, exist_ok=True)
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        os.chdir(folder)
        try:
            with redirect_stdout(StringIO()):  # a line for each file
                return into / str(build_wheel(str(into)))
        finally:
            os.chdir(here)


if __name__ == "__main__":
    built = build((ROOT / "dist") if len(sys.argv) < 2 else Path(sys.argv[1]).resolve())
    sys.stdout.write(f"{built.name}: {built.stat().st_size / 1024:.0f} KiB, {len(modules())} modules\n")
