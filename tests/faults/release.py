"""Workers of another release: an earlier revision's files, or a release to come, run beside ours by the same Python."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from oldhost_sync.policy.release import RELEASE
from oldhost_sync.policy.snapshot import VERSION
from tests.faults.product import ROOT

# The newest revision before workers told which release they know; those of 0.1 may not run beside these
# (docs/operations.md).
PREVIOUS = "c199469"
PACKAGES = ("oldhost_sync", "workflows", "activities", "oldhost_simulator")
NEXT = RELEASE + 1
# What a release to come may change: decisions, and the form in which a run hands its state on.
_CHANGES = (
    (
        "oldhost_sync/policy/release.py",
        f"OUTLIVES_CLOCKS = RELEASE = {RELEASE}",
        f"OUTLIVES_CLOCKS = {RELEASE}\nRELEASE = {NEXT}",
    ),
    ("oldhost_sync/policy/release.py", "SNAPSHOT_SINCE = {", f"SNAPSHOT_SINCE = {{{VERSION + 1}: {NEXT}, "),
    (
        "oldhost_sync/policy/snapshot.py",
        f"\nVERSION = {VERSION}\nREADABLE = (",
        f"\nVERSION = {VERSION + 1}\nREADABLE = (VERSION, ",
    ),
    (
        "oldhost_sync/policy/machine.py",
        "if self.in_flight.ordinary >= SENDS_IN_FLIGHT_MAX:",
        f"if self.in_flight.ordinary >= (1 if self.release >= {NEXT} else SENDS_IN_FLIGHT_MAX):",
    ),
)


def next_release(folder: Path) -> Path:
    """The tree of a release to come in `folder`: this one's, with what a release may change."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, before, after in _CHANGES:
        path = folder / name
        text = path.read_text()
        assert text.count(before) == 1, f"{name} has {before!r} {text.count(before)} times"
        path.write_text(text.replace(before, after))
    return folder


def check_out(revision: str, folder: Path) -> Path:
    """The tree of `revision` in `folder`. CalledProcessError where the repository has no such revision."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", revision], check=True, capture_output=True, timeout=60
    )
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def is_known(revision: str) -> bool:
    """Not in a clone that was made without history."""
    asked = subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{revision}^{{commit}}"],
        check=False,
        capture_output=True,
        timeout=60,
    )
    return asked.returncode == 0
