"""The wheel that applications install: one top-level name, one dependency, and their own modules stay theirs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from deploy import client_wheel
from oldhost_sync import settings
from oldhost_sync.settings import SettingsError, check_client
from tests.architecture.project_files import ROOT

APPLICATIONS_OWN = (
    "worker.py",
    "starter.py",
    "workflows/__init__.py",
    "activities/__init__.py",
    "migrations/__init__.py",
)
USE = """
import worker, starter, workflows, activities, migrations
from oldhost_sync import *
from oldhost_sync import record_change, run_in_transaction, InvalidChange
assert {each.mine for each in (worker, starter, workflows, activities, migrations)} == {True}
from sqlalchemy import create_engine
try:
    with create_engine("sqlite://").begin() as connection:
        record_change(
            connection, host="oldhost", entity_type="unit", entity_id="A-101", event_type="x", payload={"n": 2**70}
        )
except InvalidChange as error:
    print(error)
"""

TESTS = """
from sqlalchemy import create_engine
from oldhost_sync import record_change

def test_records(oldhost_sync_recorder):
    with create_engine("sqlite://").begin() as connection:
        record_change(connection, host="oldhost", entity_type="unit", entity_id="a", event_type="x", payload={})
    assert [change.priority_class for change in oldhost_sync_recorder.changes()] == ["TXN"]

def test_stack(oldhost_sync_stack):
    pass
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    command = [sys.executable, "-W", "ignore", str(ROOT / "deploy" / "client_wheel.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_it_needs_nothing_but_sqlalchemy_and_httpx_if_it_speaks_http(wheel: Path) -> None:
    others = {
        name.partition(".")[0]
        for path in client_wheel.modules().values()
        for name in client_wheel.imported(path)
        if name.partition(".")[0] not in sys.stdlib_module_names
    }
    assert others == {"oldhost_sync", "sqlalchemy", "httpx", "pytest"}
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        needs = [line for line in archive.read(metadata).decode().splitlines() if line.startswith("Requires-Dist")]
    assert [need.partition(">=")[0] for need in needs if "extra" not in need] == ["Requires-Dist: sqlalchemy"]
    assert [need.partition(">=")[0] for need in needs if 'extra == "http"' in need] == ["Requires-Dist: httpx"]


def test_it_has_one_top_level_name(wheel: Path) -> None:
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"oldhost_sync"}


def test_its_files_are_the_product_s_own(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = [name for name in archive.namelist() if name.startswith("oldhost_sync/")]
    assert [name for name in names if archive.read(name) != (ROOT / name).read_bytes()] == []


def test_an_application_keeps_its_own_modules_beside_it(wheel: Path, tmp_path: Path) -> None:
    """It sees its own files, the client, and SQLAlchemy."""
    application, packages = tmp_path / "application", tmp_path / "packages"
    for name in APPLICATIONS_OWN:
        (application / name).parent.mkdir(parents=True, exist_ok=True)
        (application / name).write_text("mine = True\n")
    zipfile.ZipFile(wheel).extractall(packages)
    for name in ("sqlalchemy", "typing_extensions"):
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        origin = Path(found.origin)
        needed = origin.parent if origin.name == "__init__.py" else origin
        (packages / needed.name).symlink_to(needed)
    done = subprocess.run(
        [sys.executable, "-S", "-c", USE],
        cwd=application,
        env={"PYTHONPATH": f"{application}:{packages}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "payload" in done.stdout


def test_its_test_kit_records_without_the_product_and_says_what_its_stack_needs(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "packages")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["oldhost_sync.testing"]\n')
    (tmp_path / "test_application.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "packages")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "1 passed, 1 error" in done.stdout, done.stdout
    assert "runs the whole product: install its wheel with the extra `embedded`" in done.stdout


def check_beside(monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    versions = {"oldhost-sync": "1.0.0", "oldhost-sync-client": client}
    monkeypatch.setattr(settings, "version", versions.__getitem__)
    check_client.__wrapped__()


def test_beside_the_product_it_may_have_the_same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    check_beside(monkeypatch, "1.0.0")


def test_beside_the_product_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"uninstall both, then install oldhost-sync 1\.0\.0"):
        check_beside(monkeypatch, "1.0.1")
