"""The example of a driver, installed as its users install it: by pip, beside the product."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_packaging import copied

# It installs two packages, and runs all of the kit.
pytestmark = pytest.mark.timeout(300)

EXAMPLE = Path(__file__).parents[2] / "examples" / "fiscal-device"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: what is built leaves files beside its source."""
    copy = tmp_path_factory.mktemp("example") / EXAMPLE.name
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    return copy


@pytest.fixture(scope="module")
def python(folder: Path) -> str:
    """Of a new environment with the product's wheel and the example. What both need is this environment's: nothing is
    fetched.
    """
    env, wheels = folder.parent / "env", folder.parent / "wheels"
    product = copied(folder.parent / "product")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    options = ("--no-index", "--no-deps")
    build = ("wheel", *options, "--no-build-isolation", "--wheel-dir", str(wheels), str(product), str(folder))
    subprocess.run((*pip, *build), check=True)
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(env)), check=True)
    (libraries,) = env.glob("lib/python3*/site-packages")
    (libraries / "needed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    install = ("--python", str(env / "bin" / "python"), "install", *options, *map(str, wheels.iterdir()))
    subprocess.run((*pip, *install), check=True)
    assert (libraries / "oldhost_sync").is_dir()
    return str(env / "bin" / "python")


def test_its_driver_passes_the_kit_of_the_wheel(folder: Path, python: str) -> None:
    where = f"import oldhost_sync.driver_kit as kit; assert kit.__file__.startswith({str(folder.parent)!r})"
    subprocess.run((python, "-c", where), cwd=folder, check=True)
    command = (python, "-m", "pytest", "-q", "tests")
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
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


def test_a_hosts_file_names_it_and_a_check_finds_what_it_claims(folder: Path, python: str, device: int) -> None:
    hosts = folder / "hosts.toml"
    hosts.write_text(hosts.read_text().replace("4100", str(device)))
    command = (Path(python).with_name("oldhost-sync"), "--host", "till", "driver", "check")
    given = {**os.environ, "SYNC_HOSTS_FILE": str(hosts)}
    checked = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "125" in checked.stdout, "the number that the log-on tells"
