"""A program that gets SIGTERM at each of its lines: a handler that takes a lock is then caught with that lock held."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS_MAX = 5

_PRELUDE = f"""
import faulthandler, signal, sys

faulthandler.dump_traceback_later({SECONDS_MAX}, exit=True)

def raise_it(*_):
    signal.raise_signal(signal.SIGTERM)
    return raise_it

def signal_at_each_line(frame):
    frame.f_trace = raise_it
    sys.settrace(raise_it)

def no_more_signals():
    sys.settrace(None)
"""


def run_with_signals(code: str) -> str:
    """Run `code` in a process; what it printed as errors: "" when it ended well, the stacks when it hung.

    From `signal_at_each_line(frame)` to `no_more_signals()`, each further line of `frame`, and of what it calls, is
    preceded by a SIGTERM.
    """
    command = [sys.executable, "-c", _PRELUDE + code]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * SECONDS_MAX, check=False)
    assert ended.returncode == 0 or ended.stderr, f"it ended with {ended.returncode}"
    return ended.stderr
