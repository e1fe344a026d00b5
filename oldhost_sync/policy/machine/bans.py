"""Bans: what OldHost reports of one, and what an earlier run left of one, changes the breaker and raises alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oldhost_sync.policy.machine.breaker import BreakerState

if TYPE_CHECKING:
    from oldhost_sync.policy.machine.machine import Machine

SECOND_BAN = "a second ban within the hour"


def load(machine: Machine, left_ms: int, now_ms: int) -> None:
    """While rebuilding: the last ban and what is left of it; negative when it is over."""
    machine.breaker.load_ban(left_ms, now_ms)
    if left_ms > 0:
        machine.alerts.banned(machine.breaker.until_ms)  # the earlier run may have ended before it raised this


def report(machine: Machine, ban_ms: int, now_ms: int) -> None:
    """OldHost answered with a ban. A second one soon after the first halts the writer."""
    before = machine.breaker.state
    again = machine.breaker.ban(now_ms, ban_ms)
    is_new = before is BreakerState.CLOSED
    if is_new or before is BreakerState.HALF_OPEN:
        machine.alerts.banned(machine.breaker.until_ms)
    if not is_new:
        return
    machine.counters.bans += 1
    machine.load.look_soon(now_ms)
    if again:
        machine.halt(SECOND_BAN)
        machine.alerts.record_halt(SECOND_BAN)
