"""The planner's model of OldHost: one request after the other, each with the same latency, and at most one ban."""

from __future__ import annotations

from oldhost_sync.planner.scenario import Scenario

Interval = tuple[float, float]


class HostModel:
    """Times in ms of the scenario's clock. Whether a ban refuses a request is decided when it ends (docs/protocol.md).

    `turnaround_ms`: the time that we need from an answer to the next request.
    """

    def __init__(self, scenario: Scenario, turnaround_ms: float = 0.0) -> None:
        self._latency_ms = scenario.latency_ms
        self._turnaround_ms = turnaround_ms
        self.ban = ban_interval_ms(scenario)
        self.free_at_ms = 0.0
        self.busy_ms = 0.0

    def serve(self, ready_ms: float) -> tuple[float, float, bool]:
        """One write that waits at the socket from `ready_ms` on. Returns (start, end, refused because of a ban)."""
        start_ms, end_ms = self._occupy(ready_ms)
        if self._is_banned(end_ms):
            return start_ms, end_ms, True
        self.busy_ms += self._latency_ms
        return start_ms, end_ms, False

    def ask(self, ready_ms: float, *, reads: int) -> float:
        """Read the expected nonce `reads` times. Returns when the last answer arrives."""
        for _ in range(reads):
            _, ready_ms = self._occupy(ready_ms)
        return ready_ms

    def ban_left_ms(self, now_ms: float) -> int:
        """How long the ban still runs, 0 when there is none."""
        return int(self.ban[1] - now_ms) + 1 if self.ban is not None and self._is_banned(now_ms) else 0

    def _occupy(self, ready_ms: float) -> Interval:
        start_ms = max(ready_ms, self.free_at_ms + self._turnaround_ms)
        self.free_at_ms = start_ms + self._latency_ms
        return start_ms, self.free_at_ms

    def _is_banned(self, at_ms: float) -> bool:
        return self.ban is not None and self.ban[0] <= at_ms < self.ban[1]


def ban_interval_ms(scenario: Scenario) -> Interval | None:
    """(start, end) of the scenario's ban."""
    if scenario.ban_at_s is None:
        return None
    return scenario.ban_at_s * 1000, (scenario.ban_at_s + scenario.ban_s) * 1000
