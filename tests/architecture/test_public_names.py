"""What applications import from the package itself, and what that must not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import oldhost_sync
from tests.architecture.project_files import ROOT

LOADED = """
import sys
from oldhost_sync import record_change
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_recording_a_change_loads_neither_temporal_nor_the_api(tmp_path: Path) -> None:
    loaded = run(tmp_path, "-c", LOADED).stdout.split()
    assert "sqlalchemy" in loaded
    assert not {"temporalio", "fastapi", "workflows", "activities", "typer", "pydantic"} & set(loaded)


@pytest.mark.parametrize("name", oldhost_sync.__all__)
def test_each_public_name_can_be_imported(name: str) -> None:
    assert getattr(oldhost_sync, name).__name__ == name


def test_another_name_is_refused_as_usual() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = oldhost_sync.nonsense


def test_the_command_works_in_a_folder_that_has_packages_of_the_same_names(tmp_path: Path) -> None:
    for name in ("workflows", "activities"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    done = run(tmp_path, "-m", "oldhost_sync.cli", "status", "--help")
    assert (done.returncode, "Usage" in done.stdout) == (0, True), done.stderr
