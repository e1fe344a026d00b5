"""Errors as users see them: one line on standard error that says what is wrong and what to do, and an exit code.

0 done · 1 not done, or not completely · 2 the command or a setting is wrong · 130 interrupted. `--traceback` shows the
traceback, for developers.
"""

from __future__ import annotations

import os
import sys
from threading import Thread

from oldhost_sync.policy.plain_text import plain

FAILED, WRONG, INTERRUPTED = 1, 2, 130
LAST_WORDS_SECONDS = 1.0


class CliError(Exception):
    """What the user must know, in one line. `exit_code`: see the module's docstring."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def print_error(message: str, program: str = "oldhost-sync", *, is_last: bool = False) -> None:
    """One line on standard error. `is_last`: the process ends with it."""
    line = plain(f"{program}: {' '.join(message.split())}") + "\n"
    if is_last:
        write_last_words(line)
    else:
        sys.stderr.write(line)


def write_last_words(text: str) -> None:
    """To standard error. If nobody reads that any more, the process ends here: the interpreter's end would wait."""
    writing = Thread(target=sys.stderr.write, args=(text,), daemon=True)
    writing.start()
    writing.join(LAST_WORDS_SECONDS)
    if writing.is_alive():
        os._exit(FAILED)


def refuse_arguments(program: str) -> None:
    """For the programs that take none: end with what to do instead."""
    if sys.argv[1:]:
        print_error(f"{program} takes no arguments: its settings are SYNC_… in the environment or in .env.", program)
        sys.exit(WRONG)
