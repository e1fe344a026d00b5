"""The states of several hosts, one line each, from the database: whether a writer runs is not in it.

Each figure is bounded or read from an index, so twenty hosts take a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.engine import Connection

from oldhost_sync.store.audit import current_pause
from oldhost_sync.store.ledger.halt_decision import read_decision
from oldhost_sync.store.views.ban import read_ban
from oldhost_sync.store.views.overview import count_open_alerts, oldest_waiting_at, read_ledger

_ANSWERED_LATELY = (
    "SELECT EXISTS (SELECT 1 FROM nonce_requests WHERE host = %s AND nonce = %s "
    "AND completed_at > UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE)"
)


@dataclass(frozen=True, slots=True)
class HostLine:
    """`state`: HALTED, BANNED, PAUSED, IDLE (no change waits), SENDING (changes wait, and an operation was answered in
    the last minute) or WAITING (changes wait, and none was). `why`: the reason for a stop.
    """

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
        decision = read_decision(connection, host)
        state, why = "HALTED", str(halted) if decision is None else decision.said
    elif ban is not None:
        state, why = "BANNED", "OldHost refuses everything until the ban is over"
    elif pause is not None:
        state, why = "PAUSED", pause.reason
    elif waiting is None:
        state, why = "IDLE", ""
    elif connection.exec_driver_sql(_ANSWERED_LATELY, (host, ledger.get("last_applied_nonce"))).scalar():
        state, why = "SENDING", ""
    else:
        state, why = "WAITING", ""
    return HostLine(host, state, why, waiting, count_open_alerts(connection, host))
