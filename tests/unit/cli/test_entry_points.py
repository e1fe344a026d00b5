"""worker.py and starter.py tell what is wrong in one line, with what to do; their servers' own
tracebacks help nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
AWAY = "127.0.0.1:1"
DATABASE_AWAY = f"mysql+pymysql://u:secret@{AWAY}/d"


def said(program: str, folder: Path, **environment: str) -> tuple[int, str]:
    """Exit code and standard error of `python PROGRAM` in `folder`, with no settings but these."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SYNC_", "TEMPORAL_"))}
    done = subprocess.run(
        [sys.executable, str(ROOT / program)],
        env={**own, **environment}, cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_starter_without_temporal_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    code, told = said("starter.py", tmp_path, TEMPORAL_ADDRESS=AWAY)
    assert (code, told.count("\n")) == (1, 1)
    assert told.startswith("starter.py: Temporal can't be reached at 127.0.0.1:1. Start it, or check TEMPORAL_ADDRESS")


def test_starter_takes_temporals_address_from_the_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TEMPORAL_ADDRESS=127.0.0.1:2\n")
    assert "can't be reached at 127.0.0.1:2." in said("starter.py", tmp_path)[1]


@pytest.mark.parametrize("program", ["starter.py", "worker.py"])
def test_a_bad_setting_is_one_line_with_its_name(program: str, tmp_path: Path) -> None:
    code, told = said(program, tmp_path, SYNC_DEBOUNCE_SECONDS="soon", TEMPORAL_ADDRESS=AWAY)
    assert (code, told.count("\n")) == (2, 1)
    assert told.startswith(f"{program}: SYNC_DEBOUNCE_SECONDS: ")


def test_worker_without_its_database_is_one_line_without_the_password(tmp_path: Path) -> None:
    code, told = said("worker.py", tmp_path, SYNC_DATABASE_URL=DATABASE_AWAY, SYNC_OLDHOST_URL=f"http://{AWAY}")
    assert (code, told.count("\n")) == (1, 1)
    assert told.startswith("worker.py: the database can't be reached")
    assert "secret" not in told


def test_worker_without_settings_says_which_is_missing(tmp_path: Path) -> None:
    code, told = said("worker.py", tmp_path, TEMPORAL_ADDRESS=AWAY)
    assert (code, told.count("\n")) == (2, 1)
    assert "SYNC_DATABASE_URL is not set" in told


WORKER_THAT_IS_DONE = """
import atexit
from oldhost_sync.roles import worker

async def run(_settings):
    print("it worked")

atexit.register(print, "the interpreter's teardown")
worker.run = run
worker.main()
"""


def test_worker_that_fails_in_a_way_nobody_foresaw_shows_its_traceback_and_ends_without_the_teardown() -> None:
    program = WORKER_THAT_IS_DONE.replace('print("it worked")', "raise ZeroDivisionError")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("ZeroDivisionError\n")


def test_worker_that_is_done_ends_without_the_interpreters_teardown() -> None:
    """Which may wait for ever for a thread of the SDK that has a line to log."""
    argv = [sys.executable, "-c", WORKER_THAT_IS_DONE]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "it worked\n")
