"""Each mutant in a copy of the project of its own, and the programme's levels let loose on it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutants.levels import Level
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("activities", "docs", "migrations", "oldhost_simulator", "oldhost_sync", "tests", "workflows")
LEVEL_SECONDS_MAX = 900


@dataclass(frozen=True, slots=True)
class Catch:
    """`level` None: it survived."""

    mutant: Mutant
    level: Level | None
    seconds: float


class PatchRotted(Exception):
    """The text that a patch replaces is not there, or not once: write the patch anew."""


@contextmanager
def mutated(mutant: Mutant) -> Iterator[Path]:
    """A copy of the project with the mutant in it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        for name in ("README.md", "pyproject.toml", "alembic.ini", "worker.py", "starter.py"):
            shutil.copy(ROOT / name, root / name)
        apply(mutant, root)
        yield root


def apply(mutant: Mutant, root: Path) -> None:
    for patch in mutant.patches:
        path = root / patch.path
        text = path.read_text()
        if text.count(patch.old) != 1:
            raise PatchRotted(f"{mutant.name}: {patch.path} has {text.count(patch.old)} times {patch.old!r}")
        path.write_text(text.replace(patch.old, patch.new))


class UnfitLevel(Exception):
    """A level that fails without any mutant: what it kills proves nothing."""


@cache
def is_fit(level: Level) -> bool:
    """The level passes on the product as it is."""
    nobody = Mutant("nobody", (), seeds=300)
    with mutated(nobody) as root:
        return passes(level.command(nobody.seeds), root)


def hunt(mutant: Mutant) -> Catch:
    """Let the levels loose on it, until one finds it."""
    began = time.monotonic()
    with mutated(mutant) as root:
        for level in mutant.levels:
            if not passes(level.command(mutant.seeds), root):
                if not is_fit(level):
                    raise UnfitLevel(level.name)
                return Catch(mutant, level, time.monotonic() - began)
    return Catch(mutant, None, time.monotonic() - began)


def passes(arguments: list[str], root: Path) -> bool:
    """A level that hangs has found something too. Its own processes end with it."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(arguments, cwd=root, env=environment, start_new_session=True, **quiet) as level:
        try:
            return level.wait(LEVEL_SECONDS_MAX) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):
                os.killpg(level.pid, signal.SIGKILL)
