"""A role's process: how often its threads switch, how often garbage is collected, and which signals end it."""

from __future__ import annotations

import gc
import signal
import sys

# A thread that got an answer from MariaDB or OldHost waits this long for the interpreter while another one calculates.
# With Python's default of 5 ms it would wait that long at each of an operation's dozen answers, while a workflow reads
# a backlog.
SWITCH_SECONDS = 0.0005
# A writer with 50,000 waiting keys has a million small long-lived objects: with the default first threshold, 700, the
# garbage collector took two thirds of the time needed to load a snapshot. But a higher threshold lets memory grow
# longer before it is freed: ended activities and runs leave cycles behind, most of all with many hosts.
COLLECTOR_THRESHOLDS = (20_000, 20, 10)


def share_among_threads() -> None:
    """Switch threads more often, so that answered ones run soon. For the whole process."""
    sys.setswitchinterval(SWITCH_SECONDS)


def hold_many_objects() -> None:
    """Collect garbage less often. For the whole process."""
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def collect_only_what_comes() -> None:
    """Leave what is loaded by now out of every later collection: a whole one took 0.1 s of an idle core, and all writes
    of the API waited. For the whole process, once, when a role has made what it keeps.
    """
    gc.collect()
    gc.freeze()


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals at which a role finishes what it has begun, and ends.

    SIGHUP, which a closing terminal sends, is one of them unless it is ignored (`nohup`).
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, signal.SIGHUP
