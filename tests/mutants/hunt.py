"""Each mutant in a copy of the project of its own, and the programme's levels let loose on it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutants.catalogue import (
    ALERTS,
    BY_HAND,
    CLUSTER,
    CONFORMANCE,
    ENDED_WORKERS,
    EXHAUSTIVE,
    FOREIGN_LOCKS,
    GIVING_WAY,
    MARIADB,
    OVERDUE,
    RECOVERY,
    RELEASES,
    RESETS,
    SIGNALS,
    SIMULATION,
    STALLED,
    UNIT,
    WATCHES,
    Mutant,
)

ROOT = Path(__file__).parents[2]
COPIED = ("activities", "migrations", "oldhost_simulator", "oldhost_sync", "tests", "workflows")
LEVEL_SECONDS_MAX = 900


@dataclass(frozen=True, slots=True)
class Catch:
    """`level` None: it survived."""

    mutant: Mutant
    level: str | None
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
        for name in ("pyproject.toml", "alembic.ini", "worker.py", "starter.py"):
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


def command(level: str, mutant: Mutant) -> list[str]:
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header"]
    return {
        SIMULATION: [
            sys.executable,
            "-m",
            "tests.simulation",
            "--seeds",
            str(mutant.seeds),
            "--quiet",
            "--stop-at-first",
        ],
        EXHAUSTIVE: [sys.executable, "-m", "tests.exhaustive", "--only", "singles"],
        UNIT: [*pytest, "tests/unit/policy", "tests/unit/oldhost"],
        STALLED: [*pytest, "tests/simulation/test_deadline.py"],
        CONFORMANCE: [*pytest, "tests/conformance/test_simulated_ledger.py"],
        MARIADB: [*pytest, "tests/integration/relay/test_rounds.py"],
        FOREIGN_LOCKS: [*pytest, "tests/integration/ledger/test_foreign_locks.py"],
        ALERTS: [*pytest, "tests/integration/store/test_alerts.py", "tests/integration/store/test_alert_life.py"],
        SIGNALS: [*pytest, "tests/workflows/test_submissions.py", "tests/workflows/test_starts.py"],
        ENDED_WORKERS: [
            *pytest,
            "tests/integration/store/test_worker_locks.py",
            "tests/integration/store/test_worker_watch.py",
        ],
        CLUSTER: [*pytest, "tests/integration/ledger/test_cluster.py"],
        BY_HAND: [*pytest, "tests/workflows/test_ended_by_hand.py"],
        RESETS: [*pytest, "tests/faults/test_signals_unread.py", "-k", "nobody_had_started"],
        GIVING_WAY: [*pytest, "tests/integration/session/test_giving_way.py"],
        RECOVERY: [*pytest, "tests/integration/session/test_recovery.py"],
        OVERDUE: [*pytest, "tests/integration/session/test_reply_timeout.py"],
        RELEASES: [*pytest, "tests/unit/policy/test_release.py", "tests/unit/test_release_watch.py"],
        WATCHES: [*pytest, "tests/unit/relay", "tests/unit/test_writer_health.py"],
    }[level]


class UnfitLevel(Exception):
    """A level that fails without any mutant: what it kills proves nothing."""


@cache
def is_fit(level: str) -> bool:
    """The level passes on the product as it is."""
    nobody = Mutant("nobody", (), seeds=300)
    with mutated(nobody) as root:
        return passes(command(level, nobody), root)


def hunt(mutant: Mutant) -> Catch:
    """Let the levels loose on it, until one finds it."""
    began = time.monotonic()
    with mutated(mutant) as root:
        for level in mutant.levels:
            if not passes(command(level, mutant), root):
                if not is_fit(level):
                    raise UnfitLevel(level)
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
