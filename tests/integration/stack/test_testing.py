"""The test kit's stack, as an application's tests use it: in a pytest of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.mariadb, pytest.mark.temporal]

SECONDS_MAX = 100.0
CONFTEST = 'pytest_plugins = ["oldhost_sync.testing"]\n'
SUBMITS = """
import time
from pathlib import Path

def test_a_change_is_applied(oldhost_sync_stack):
    with oldhost_sync_stack.client() as client:
        key = client.submit("unit", "A-101", "unit_status_changed", {"status": "Clean"}).idempotency_key
        assert client.wait(key, seconds=60).state == "APPLIED"

def test_it_is_the_same_stack_for_the_next_test(oldhost_sync_stack):
    with oldhost_sync_stack.client() as client:
        client.submit("unit", "A-101", "unit_status_changed", {"status": "Dirty"})
    if Path("wait").exists():
        Path("waiting").touch()
        time.sleep(1000)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_application.py").write_text(SUBMITS)
    return tmp_path


def started(project: Path, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={project / 'temporary'}"]
    given = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(
        [*command, "test_application.py"],
        cwd=project,
        env=given,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def processes_of(project: Path) -> Iterator[int]:
    """Those that write a log there."""
    for output in Path("/proc").glob("[0-9]*/fd/1"):
        try:
            is_of_project = output.readlink().is_relative_to(project)
        except OSError:
            continue
        if is_of_project:
            yield int(output.parts[2])


def test_an_application_s_tests_run_on_the_whole_product_whatever_their_environment_says(project: Path) -> None:
    with started(
        project, SYNC_DATABASE_URL="mysql+pymysql://nobody@nowhere/none", SYNC_OLDHOST_URL="http://x"
    ) as tests:
        said, _ = tests.communicate(timeout=SECONDS_MAX)
    assert tests.returncode == 0, said
    assert "2 passed" in said
    assert list(processes_of(project)) == []


def test_its_processes_end_when_pytest_is_killed(project: Path) -> None:
    (project / "wait").touch()
    with started(project) as tests:
        until = time.monotonic() + SECONDS_MAX
        while not (project / "waiting").exists():
            assert tests.poll() is None, tests.communicate()
            assert time.monotonic() < until
            time.sleep(0.1)
        assert len(list(processes_of(project))) == 6, "MariaDB, Temporal, the simulator and three roles"
        tests.send_signal(signal.SIGKILL)
        tests.communicate()
    while list(processes_of(project)):
        assert time.monotonic() < until
        time.sleep(0.1)
