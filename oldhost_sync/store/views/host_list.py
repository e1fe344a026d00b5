"""The states of several hosts, one line each, from the database: whether a writer runs is not in it.

Each figure is bounded or read from an index, so twenty hosts take a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.engine import Connection

from oldhost_sync.store.audit import current_pause
from oldhost_sync.store.views.ban import read_ban
from oldhost_sync.store.views.overview import count_open_alerts, oldest_waiting_at, read_ledger


@dataclass(frozen=True, slots=True)
class HostLine:
    """`state`: HALTED, BANNED, PAUSED, SENDING (changes wait) or IDLE. `why`: the reason for a stop."""

    host: str
    state: str
    why: str
    oldest_waiting_at: datetime | None
    open_alerts: int


def read_hosts(connection: Connection, hosts: Sequence[str]) -> list[HostLine]:
    """One line for each of `hosts`, in their order."""
    return [_line(connection, host) for host in hosts]


def _line(connection: Connection, host: str) -> HostLine:
    ledger = read_ledger(connection, host) or {}
    waiting = oldest_waiting_at(connection, host)
    pause, ban = current_pause(connection, host), read_ban(connection, host)
    if halted := ledger.get("halted"):
        state, why = "HALTED", str(halted)
    elif ban is not None:
        state, why = "BANNED", "OldHost refuses everything until the ban is over"
    elif pause is not None:
        state, why = "PAUSED", pause.reason
    else:
        state, why = ("IDLE" if waiting is None else "SENDING"), ""
    return HostLine(host, state, why, waiting, count_open_alerts(connection, host))
