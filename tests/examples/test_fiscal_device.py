"""The example of a driver, installed as its users install it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "fiscal-device"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: what is built leaves files beside its source."""
    copy = tmp_path_factory.mktemp("example") / EXAMPLE.name
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    return copy


@pytest.fixture(scope="module")
def environment(folder: Path) -> dict[str, str]:
    """With the package and its entry point, which this virtual environment never gets."""
    target = folder.parent / "installed"
    uv = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable, "--target", str(target))
    subprocess.run((*uv, "--no-deps", "--no-build-isolation", "--offline", str(folder)), check=True)
    return {**os.environ, "PYTHONPATH": str(target)}


@pytest.fixture
def port(folder: Path) -> Iterator[str]:
    serve = (sys.executable, "tests/serve.py", "0")
    with subprocess.Popen(serve, cwd=folder, stdout=subprocess.PIPE, text=True) as device:
        assert device.stdout
        yield device.stdout.readline().strip()
        device.kill()


def test_its_driver_passes_the_kit(folder: Path, environment: dict[str, str]) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "tests")
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_hosts_file_names_its_driver(folder: Path, environment: dict[str, str], port: str) -> None:
    hosts = folder / "hosts.toml"
    hosts.write_text(hosts.read_text().replace("4100", port))
    command = (sys.executable, "-m", "oldhost_sync.cli", "--host", "till", "driver", "check", "--json")
    checked = subprocess.run(
        command, env={**environment, "SYNC_HOSTS_FILE": str(hosts)}, capture_output=True, text=True, check=True
    )
    verdicts = {line["subject"]: line["verdict"] for line in json.loads(checked.stdout)}
    assert verdicts["log-on"] == verdicts["the host's incarnation"] == "holds"
    assert set(verdicts.values()) == {"holds", "not checked"}
