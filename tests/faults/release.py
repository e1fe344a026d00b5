"""Workers of a release to come, run beside ours: this tree's files, with what a release may change."""

from __future__ import annotations

import shutil
from pathlib import Path

from oldhost_sync.policy.machine.release import RELEASE
from oldhost_sync.policy.machine.snapshot import VERSION, VERSION_MIN
from tests.faults.product import ROOT

PACKAGES = ("oldhost_sync", "workflows", "activities", "oldhost_simulator")
NEXT = RELEASE + 1
# What a release to come may change: decisions, and the form in which a run hands its state on.
_CHANGES = (
    ("oldhost_sync/policy/machine/release.py", f"\nRELEASE = {RELEASE}\n", f"\nRELEASE = {NEXT}\n"),
    ("oldhost_sync/policy/machine/release.py", "\nRELEASE_MIN = ", f"\nRELEASE_MIN = {RELEASE}  # "),
    (
        "oldhost_sync/policy/machine/snapshot.py",
        f"\nVERSION = VERSION_MIN = {VERSION}\n",
        f"\nVERSION, VERSION_MIN = {NEXT}, {VERSION_MIN}\n",
    ),
    (
        "oldhost_sync/policy/machine/machine.py",
        "bound_is_cut or self.in_flight.ordinary >= SENDS_IN_FLIGHT_MAX:",
        f"bound_is_cut or self.in_flight.ordinary >= (1 if self.release >= {NEXT} else SENDS_IN_FLIGHT_MAX):",
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
