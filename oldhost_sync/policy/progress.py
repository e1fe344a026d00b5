"""Progress: a fate, not an opening. How long none has come while something could go, and why, as far as anybody has
said.

A session that opens and brings nothing is none: such sessions are counted across their openings and come ever more
slowly.
"""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.policy.writer_policy import NO_PROGRESS_MS, REOPEN_MS_MAX, REOPEN_MS_MIN

# What `status` calls it, where the last word on a standstill has a name of its own.
STATES = {"busy": "BUSY", "unsteady": "UNSTEADY", "unreadable": "UNREADABLE"}


@dataclass
class Progress:
    """`since_ms`: of the last fate, or since something could go. `reason`: the last word on why none comes. `sessions`
    in a row without one. `told`: with which reason people were told.
    """

    since_ms: int
    reason: str = ""
    sessions: int = 0
    told: str | None = None
    fates: int = 0

    @property
    def due_at_ms(self) -> int:
        return self.since_ms + NO_PROGRESS_MS

    def fate(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self.reason = ""
        self.sessions = 0
        self.fates += 1

    def rest(self, now_ms: int) -> None:
        """Nothing could go."""
        self.since_ms = now_ms
        self.reason = ""

    def said(self, reason: str) -> None:
        """Somebody gave a reason for a standstill."""
        self.reason = reason or self.reason

    def session_ended(self, *, sent: bool) -> None:
        """Lost, after something was sent over it or not; what it brought was counted by `fate`."""
        if sent and not self.fates:
            self.sessions += 1
        self.fates = 0

    @property
    def pause_ms(self) -> int:
        """Before the next session: none after the first that brought nothing, then doubling."""
        return min(REOPEN_MS_MIN * 2 ** min(self.sessions - 2, 10), REOPEN_MS_MAX) if self.sessions > 1 else 0

    @property
    def state(self) -> str:
        return next((state for word, state in STATES.items() if self.reason.startswith(word)), "")
