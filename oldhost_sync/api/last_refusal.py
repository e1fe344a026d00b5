"""The last write that the database refused, as long as none has been taken since: then the process is not ready.

A database may pass every probe and take no write: with a full disk it still updates rows in place. Only a change shows
it, so this counts for a moment only: without changes nobody knows whether the next one would be refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.api import limits
from oldhost_sync.api.problems import Problem

# Those that the next write of any entity would meet, too: not a locked row, nor a process with too much to do.
KINDS = frozenset({"database-away", "commit-uncertain"})


@dataclass(slots=True)
class LastRefusal:
    """Of all hosts of this process, since they share the database. `now`: seconds, monotonic."""

    problem: Problem | None = None
    at: float = 0.0

    def note(self, problem: Problem, now: float) -> None:
        if problem.kind in KINDS:
            self.problem, self.at = problem, now

    def recorded(self) -> None:
        """A write was taken."""
        self.problem = None

    def standing(self, now: float) -> Problem | None:
        return self.problem if now - self.at <= limits.READY_REFUSED_SECONDS else None
