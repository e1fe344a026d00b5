"""The package is built without a warning: what `make setup` prints on a fresh clone is what its user has to read."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

from tests.architecture.project_files import ROOT, project_files

BUILD = "import sys; from setuptools.build_meta import build_editable; build_editable(sys.argv[1])"


WHEEL = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def test_the_version_is_the_one_that_the_changelog_is_at() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == newest[1]


def test_every_place_that_names_the_image_s_version_names_this_one() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    places = {
        "Dockerfile": r"^ARG VERSION=(\S+)$",
        "docker-compose.yml": r"\$\{OLDHOST_SYNC_VERSION:-([^}]+)\}",
        "deploy/kubernetes/overlays/example/kustomization.yaml": r"^    newTag: (\S+)",
        "docs/deployment.md": r"oldhost-sync:(\d+\.\d+\.\d+)",
    }
    named = {name: re.findall(how, (ROOT / name).read_text(), re.MULTILINE) for name, how in places.items()}
    assert {name: set(found) for name, found in named.items()} == {key: {version} for key in places}


def test_an_image_of_another_version_than_its_label_says_is_not_built() -> None:
    """The Dockerfile's own command, run with this Python."""
    (command,) = re.findall(
        r"^RUN /app/bin/python -I (-c .*?) \\\n +&&", (ROOT / "Dockerfile").read_text(), re.MULTILINE | re.DOTALL
    )
    version = metadata.version("oldhost-sync")
    script = f"{sys.executable} {command}".replace("\\\n", "")

    def built(said: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", script], env={"VERSION": said}, capture_output=True, text=True, timeout=60, check=False
        )

    assert (built(version).returncode, built("7.8.9").returncode) == (0, 1)
    assert built("7.8.9").stderr == f"this is version {version}, not 7.8.9\n"


def test_the_wheel_has_the_console_s_pages_and_assets(tmp_path: Path) -> None:
    clone = copied(tmp_path / "clone")
    done = subprocess.run(
        [sys.executable, "-c", WHEEL, str(tmp_path)], cwd=clone, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    console = ROOT / "oldhost_sync" / "console"
    files = [path for folder in ("templates", "static") for path in (console / folder).rglob("*.*")]
    assert len(files) > 10
    assert [path.name for path in files if path.relative_to(ROOT).as_posix() not in packed] == []


def copied(clone: Path) -> Path:
    """The project's files, in a folder of their own."""
    for path in project_files():
        copy = clone / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return clone


def test_an_editable_install_is_a_plain_path_and_warns_of_nothing(tmp_path: Path) -> None:
    clone, wheels = copied(tmp_path / "clone"), tmp_path / "wheels"
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
