"""What processes cost: CPU seconds and resident memory, read from /proc (Linux); and what the database has served."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import Engine

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """User and system time of the process and of its children that have ended; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11:15]) / _TICK


def resident_mib(pid: int | None = None) -> float:
    pages = int(Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()[1])
    return pages * _PAGE / 2**20


def peak_mib(pid: int) -> float:
    """The most that was ever resident."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def descendants(pid: int) -> list[int]:
    """`pid` and all processes below it."""
    found = [pid]
    for each in found:
        try:
            listed = Path(f"/proc/{each}/task/{each}/children").read_text().split()
        except FileNotFoundError:
            continue
        found += [int(child) for child in listed]
    return found


class CpuMeter:
    """CPU seconds by name between its making and `read`."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._before = self._now()

    def read(self) -> dict[str, float]:
        return {name: seconds - self._before[name] for name, seconds in self._now().items()}

    def _now(self) -> dict[str, float]:
        return {name: _total(descendants(pid)) for name, pid in self._pids.items()}


def _total(pids: Iterable[int]) -> float:
    return sum(cpu_seconds(pid) for pid in pids)


@dataclass(frozen=True, slots=True)
class Served:
    statements: int
    commits: int

    def since(self, before: Served) -> Served:
        return Served(self.statements - before.statements, self.commits - before.commits)


def served(engine: Engine) -> Served:
    """The whole server's counts so far; the private server has no other clients."""
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Com_commit')").all()
    found = {name: int(value) for name, value in rows}
    return Served(found["Questions"], found["Com_commit"])
