"""Finds the programs that we start: first beside our Python (a venv need not be activated), then on the PATH."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig

from oldhost_sync.stack.errors import StackError

# Servers' own folders, which are not on the PATH of an ordinary Debian user.
_SERVER_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")


class ProgramMissing(StackError):  # noqa: N818 - it says what happened
    """A program must be installed first; the message says how."""


def find_program(*names: str) -> str | None:
    """Full path of the first of `names` that is installed, or None."""
    folders = (sysconfig.get_path("scripts"), *os.environ.get("PATH", "").split(os.pathsep), *_SERVER_FOLDERS)
    path = os.pathsep.join(folder for folder in folders if folder)
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def module(name: str, *arguments: str) -> list[str]:
    """Command line of our module. `-P`: a package of the same name in the current folder can't replace it."""
    return [sys.executable, "-P", "-m", name, *arguments]


def need_program(*names: str, install: str) -> str:
    """As `find_program`; ProgramMissing with `install` as advice when there is none."""
    found = find_program(*names)
    if found is None:
        raise ProgramMissing(f"{names[0]} is not installed; {install}")
    return found
