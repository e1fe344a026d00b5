"""A forked role is a program like any other: its own group, environment, log and way to end."""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oldhost_sync.stack.forked_child import LOADED, ForkedChild
from tests.architecture.project_files import ROOT

pytestmark = pytest.mark.processes

PROGRAM = """
import os, signal, sys
print("says", os.environ["WORD"], sys.argv[1:], os.getcwd(), os.getpgrp() == os.getpid(), flush=True)
if sys.argv[1] == "wait":
    signal.pause()
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForkedChild:
    (tmp_path / "played.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    argv = [sys.executable, "-m", "played", "7"]
    return ForkedChild("played", argv, tmp_path / "played.log", {"WORD": "hello"}, folder=tmp_path)


def test_it_has_its_arguments_environment_folder_group_and_log(child: ForkedChild) -> None:
    child.start()
    child.wait(30)
    assert child.said() == f"says hello ['7'] {child.folder} True\n"


def test_its_exit_code_is_told(child: ForkedChild) -> None:
    child.start()
    assert child.wait(30) == 7


def test_it_is_ended_by_a_signal_and_that_is_told(child: ForkedChild) -> None:
    child.argv = [*child.argv[:3], "wait"]
    child.start()
    child.wait_until(lambda: "says" in child.said(), 30)
    child.kill()
    assert child.how_it_ended() == f"signal {signal.SIGKILL.name}"
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


@pytest.mark.parametrize("module", LOADED)
def test_what_is_loaded_before_exists(module: str) -> None:
    assert importlib.util.find_spec(module)


STARTS_ONE = """
import sys, time
from pathlib import Path
from oldhost_sync.stack.forked_child import ForkedChild, begin_loading
if __name__ == "__main__":
    begin_loading()
    child = ForkedChild("role", [sys.executable, "-m", sys.argv[1], "wait"], Path("role.log"))
    child.start()
    print(child.pid, flush=True)
    time.sleep(600)
"""


def start_one(folder: Path, module: str) -> subprocess.Popen[str]:
    (folder / "starts_one.py").write_text(STARTS_ONE)
    # This checkout's code, also where another one is installed: a mutant's copy is.
    given = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder / "path"), str(ROOT)))}
    argv = [sys.executable, "-P", str(folder / "starts_one.py"), module]
    return subprocess.Popen(argv, cwd=folder, env=given, stdout=subprocess.PIPE, text=True)


def test_it_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "played.py").write_text("import signal\nsignal.pause()\n")
    with start_one(tmp_path, "played") as starter:
        assert starter.stdout is not None
        role = os.pidfd_open(int(starter.stdout.readline()))
        starter.kill()
        assert select.select([role], [], [], 30)[0]


def test_a_package_in_the_current_folder_does_not_take_the_place_of_ours(tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "played.py").write_text("import workflows\nprint(workflows.__file__, flush=True)\n")
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "__init__.py").touch()
    with start_one(tmp_path, "played") as starter:
        assert starter.stdout is not None
        role = os.pidfd_open(int(starter.stdout.readline()))
        select.select([role], [], [], 30)
        starter.kill()
    assert (tmp_path / "role.log").read_text() == f"{ROOT / 'workflows' / '__init__.py'}\n"
