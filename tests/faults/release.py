"""The worker of another release: the files of one revision, beside ours, run by the same Python."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.faults.product import ROOT

# The newest published revision whose workers may run beside these; those of 0.1 may not (docs/operations.md).
PREVIOUS = "896c792"


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
