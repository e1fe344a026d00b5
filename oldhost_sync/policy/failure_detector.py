"""How long a worker may be silent before it counts as dead. Doubled each time when it turns out to have been only slow.

A timeout can't tell a dead worker from a slow one. But if the worker that timed out opens the next session itself, it
was slow. On an overloaded machine or Temporal, short timeouts would only cause more sessions and so more load.
"""

from __future__ import annotations

from dataclasses import dataclass

# The longest: 8 s to begin and 24 s without a heartbeat (workflows/calls.py). If the worker dies, that is still below
# the promise for emergencies.
SLACK_MAX = 4
# The longer timeouts apply this long after the last wrong suspicion.
REMEMBERED_MS = 5 * 60_000


@dataclass
class FailureDetector:
    """For the sessions of one writer."""

    _suspected: str = ""
    _slack: int = 1
    _until_ms: int = 0

    def slack(self, now_ms: int) -> int:
        """The factor by which timeouts are longer than usual."""
        return self._slack if now_ms < self._until_ms else 1

    def timed_out(self, task_queue: str) -> None:
        """The worker of this queue did not begin in time, or sent no heartbeat."""
        self._suspected = task_queue

    def opened(self, task_queue: str, now_ms: int) -> None:
        """The worker of this queue has opened a session."""
        if task_queue == self._suspected:
            self._slack = min(2 * self.slack(now_ms), SLACK_MAX)
            self._until_ms = now_ms + REMEMBERED_MS
        self._suspected = ""
