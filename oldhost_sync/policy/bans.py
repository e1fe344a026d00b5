"""Bans: what OldHost reports of one, and what an earlier run left of one, changes the breaker and raises alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oldhost_sync.policy import notices
from oldhost_sync.policy.breaker import BreakerState
from oldhost_sync.policy.load_monitor import LoadMonitor
from oldhost_sync.policy.release import LOADED_BAN_LASTS

if TYPE_CHECKING:
    from oldhost_sync.policy.machine import Machine

SECOND_BAN = "a second ban within the hour"


def load(machine: Machine, left_ms: int, now_ms: int) -> None:
    """While rebuilding: the last ban and what is left of it; negative when it is over."""
    lasts = machine.release >= LOADED_BAN_LASTS
    machine.breaker.load_ban(left_ms, now_ms, lasts=lasts)
    if lasts and left_ms > 0:
        machine.alerts.banned(machine.breaker.until_ms)  # the earlier run may have ended before it raised this


def report(machine: Machine, ban_ms: int, now_ms: int) -> None:
    """OldHost answered with a ban. A second one soon after the first halts the writer."""
    before = machine.breaker.state
    again = machine.breaker.ban(now_ms, ban_ms)
    is_new = before is BreakerState.CLOSED
    if is_new or (before is BreakerState.HALF_OPEN and machine.release >= LOADED_BAN_LASTS):
        machine.alerts.banned(machine.breaker.until_ms)
    if not is_new:
        return
    machine.counters.bans += 1
    if isinstance(machine.load, LoadMonitor):
        machine.load.look_soon(now_ms)
    if again:
        machine.halt(SECOND_BAN)
        machine.alerts.record_halt(SECOND_BAN)
    notices.of_each_blocked_emergency(machine)
