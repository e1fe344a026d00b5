"""The example of a driver, installed as its users install it."""

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


def test_its_driver_passes_the_kit(folder: Path, environment: dict[str, str]) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "tests")
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_its_claims_are_the_pages() -> None:
    page, driver = (EXAMPLE.parents[1] / "docs" / "drivers.md", EXAMPLE / "fiscal_device" / "driver.py")
    assert "modulus=0x80,\n        lowest=0x20,\n" in page.read_text()
    text = driver.read_text()
    assert "LOWEST, MODULUS = 0x20, 0x80" in text
    assert "modulus=MODULUS,\n        lowest=LOWEST,\n" in text


@pytest.fixture
def device(folder: Path) -> Iterator[int]:
    """The model at a port."""
    command = (sys.executable, "tests/serve.py", "0")
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.terminate()


def test_a_hosts_file_names_it_and_a_check_finds_what_it_claims(
    folder: Path, environment: dict[str, str], device: int
) -> None:
    hosts = folder / "hosts.toml"
    hosts.write_text(hosts.read_text().replace("4100", str(device)))
    command = (sys.executable, "-m", "oldhost_sync.cli", "--host", "till", "driver", "check")
    given = {**environment, "SYNC_HOSTS_FILE": str(hosts)}
    checked = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "125" in checked.stdout, "the number that the log-on tells"
