"""How a role's process uses its one interpreter: who may have it when, and how often it looks for garbage."""

from __future__ import annotations

import gc
import sys

# A thread that MariaDB or OldHost has answered waits until the one that calculates has had the interpreter for so long.
# Python's own 5 ms are waited for at each of an operation's dozen answers, while a workflow reads a backlog.
SWITCH_SECONDS = 0.0005
# A writer with 50,000 waiting keys has a million small long-lived objects: with the usual first threshold, 700, looking
# through them took the garbage collector two thirds of the time to load a snapshot. But the higher it is, the longer
# memory rises before it falls: activities and runs that have ended leave cycles behind, of many hosts the most.
COLLECTOR_THRESHOLDS = (20_000, 20, 10)


def share_among_threads() -> None:
    """Threads that were answered come first. Of the whole process."""
    sys.setswitchinterval(SWITCH_SECONDS)


def hold_many_objects() -> None:
    """Look for garbage less often. Of the whole process."""
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
