"""`python -m tests.simulation.path` plays one TXN change through the machine, from its arrival to its fate, and counts
what somebody who follows it has to read.

The session is open and nothing else waits: `enqueue`, `decide` (which sends it), `send_ended` (which applies it).
Counted are the functions of `oldhost_sync/policy` that are entered (`sys.setprofile`; a generator counts at each
resumption): how many, in how many files, and how often the path comes back to a file that it had left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TypeVar

import oldhost_sync.policy
from oldhost_sync.policy.changes import ChangeRef, ChangeResult, Outcome, PriorityClass
from oldhost_sync.policy.machine.actions import Send
from oldhost_sync.policy.machine.events import SendEnded, SessionOpened
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.tuning import WriterPolicy

POLICY = Path(oldhost_sync.policy.__file__).parent
START_MS = 1_700_000_000_000

T = TypeVar("T")


class PathLength(NamedTuple):
    """What is counted: functions entered, files, and returns to a file that was left."""

    calls: int
    files: int
    returns: int


def path_of_one_change() -> list[str]:
    """The file of each function that is entered, in order."""
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    machine.decide(START_MS)
    machine.opening_ended(SessionOpened(1, "queue", 1), START_MS)
    machine.decide(START_MS)
    now_ms = START_MS + 1_000
    ref = ChangeRef(7, PriorityClass.TXN, "unit", "A-101", "booking_created", now_ms, "house")
    entered: list[str] = []
    _follow(entered, lambda: machine.enqueue([ref], now_ms))
    actions = _follow(entered, lambda: machine.decide(now_ms))
    (send,) = [action for action in actions if isinstance(action, Send)]
    applied = SendEnded([ChangeResult(7, Outcome.APPLIED.value, 1)], service_ms=400.0, pace_ms=410.0)
    _follow(entered, lambda: machine.send_ended(send.number, applied, now_ms + 410, epoch=1))
    assert machine.counters.applied == 1
    return entered


def length(entered: list[str]) -> PathLength:
    visits = [name for name, _ in groupby(entered)]
    files = len(set(entered))
    return PathLength(len(entered), files, len(visits) - files)


def _follow(entered: list[str], step: Callable[[], T]) -> T:
    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(POLICY):
            entered.append(path.relative_to(POLICY).as_posix())

    sys.setprofile(note)
    try:
        return step()
    finally:
        sys.setprofile(None)


def main() -> None:
    entered = path_of_one_change()
    for name in dict.fromkeys(entered):
        print(f"{entered.count(name):4}  {name}")
    calls, files, returns = length(entered)
    print(f"{calls} calls in {files} files, {returns} returns to a file that was left")


if __name__ == "__main__":
    main()
