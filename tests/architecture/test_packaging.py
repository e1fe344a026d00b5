"""The package is built without a warning: what `make setup` prints on a fresh clone is what its user has to read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.architecture.project_files import ROOT, project_files

BUILD = "import sys; from setuptools.build_meta import build_editable; build_editable(sys.argv[1])"


def test_an_editable_install_is_a_plain_path_and_warns_of_nothing(tmp_path: Path) -> None:
    clone, wheels = tmp_path / "clone", tmp_path / "wheels"
    for path in project_files():
        copy = clone / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    wheels.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(wheels)], cwd=clone, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    (wheel,) = wheels.iterdir()
    shutil.unpack_archive(wheel, tmp_path / "unpacked", format="zip")
    (pth,) = (tmp_path / "unpacked").glob("*.pth")
    assert Path(pth.read_text().strip()) == clone
