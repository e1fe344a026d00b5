"""A forked role is a program like any other: its own group, environment, log and way to end."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.faults.forked_child import PRELOADED, ForkedChild

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


@pytest.mark.parametrize("module", PRELOADED)
def test_what_is_loaded_before_exists(module: str) -> None:
    assert importlib.util.find_spec(module)
