"""The machine's monotonic clock, with which the database's clock is compared.

The settle time is measured by the database's clock, which all workers share. But that clock can be set forward (an NTP
step, a fail-over to a server that is ahead), and then a request sent a second ago would look an hour old. So each
takeover compares how far the database's clock and this machine's have advanced since this machine's last takeover, and
subtracts the difference. A machine without an earlier takeover assumes that what is in doubt was sent just now.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import Connection

# The result when nothing is known about the database's clock: longer than any wait.
UNKNOWN_US = 365 * 24 * 3600 * 1_000_000

# `began_at`: when this machine's clock was zero, by the database's clock.
_KNOW = (
    "INSERT INTO machine_clocks (host, machine, began_at) VALUES (%s, %s, UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND)"
)
_GONE_MS = (
    "SELECT TIMESTAMPDIFF(MICROSECOND, began_at, UTC_TIMESTAMP(6)) DIV 1000 FROM machine_clocks "
    "WHERE host = %s AND machine = %s"
)
_SET = (
    "UPDATE machine_clocks SET began_at = began_at + INTERVAL %s MICROSECOND, seen_at = UTC_TIMESTAMP(6) "
    "WHERE host = %s AND machine = %s"
)


def steady_clock() -> float:
    """Seconds of a clock that also counts while the machine sleeps, where the system has one."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _machine() -> str:
    """An id that all processes share until the machine restarts, as they share its monotonic clock until then."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str(uuid.uuid4())


MACHINE = _machine()


@dataclass(frozen=True, slots=True)
class MachineClock:
    """`steady`: returns the clock's seconds. `machine`: the id of the machine that it belongs to."""

    steady: Callable[[], float] = steady_clock
    machine: str = MACHINE

    def ahead_us(self, connection: Connection, host: str) -> int:
        """By how many microseconds, at least, the database's clock was set forward since this machine last asked."""
        is_new = self._gone_us(connection, host) is None
        if is_new:
            connection.exec_driver_sql(_KNOW, (host, self.machine, self._us()))
        before = self._us()
        gone = self._gone_us(connection, host) or 0
        connection.exec_driver_sql(_SET, (gone - self._us(), host, self.machine))
        return UNKNOWN_US if is_new else max(0, gone - before)

    def _gone_us(self, connection: Connection, host: str) -> int | None:
        gone_ms = connection.exec_driver_sql(_GONE_MS, (host, self.machine)).scalar()
        return None if gone_ms is None else 1000 * int(gone_ms)

    def _us(self) -> int:
        return round(self.steady() * 1_000_000)


THIS_MACHINE = MachineClock()
