"""How long a worker may be silent before it counts as dead. After each time that it was only slow, twice as long.

A time limit can't tell a dead worker from a slow one. But where the worker that was given up opens the next session
itself, it was slow: on a full machine, or a full Temporal, short limits only add sessions to what is too much already.
"""

from __future__ import annotations

from dataclasses import dataclass

# 8 s to begin and 24 s without a heartbeat (workflows/calls.py): below the promise for emergencies, if the worker dies.
SLACK_MAX = 4
# So long after it was last wrong.
REMEMBERED_MS = 5 * 60_000


@dataclass
class FailureDetector:
    """Of one writer's sessions."""

    _suspected: str = ""
    _slack: int = 1
    _until_ms: int = 0

    def slack(self, now_ms: int) -> int:
        """So many times longer than usual are the limits."""
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
