"""Progress: how long no change has got its fate while something could be sent, and the last reason that was reported.

A session that opens but brings no fate is no progress. Such sessions in a row are counted, and the pauses between them
get longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.policy.tuning import NO_PROGRESS_MS, REOPEN_MS_MAX, REOPEN_MS_MIN

# The state that `status` shows, if the last reason for the standstill begins with this word.
STATES = {
    "busy": "BUSY",
    "unsteady": "UNSTEADY",
    "unreadable": "UNREADABLE",
    "credentials": "UNAUTHORIZED",
    "refused": "REFUSED",
    "silent": "SILENT",
}


@dataclass
class Progress:
    """`since_ms`: when the last fate arrived, or when something could be sent again. `reason`: the last reported reason
    why none arrives. `sessions`: how many in a row brought none. `open_alert`: the reason in the open alert;
    None: no alert is open.
    """

    since_ms: int
    reason: str = ""
    sessions: int = 0
    open_alert: str | None = None
    fates: int = 0

    def __post_init__(self) -> None:
        self.looked_at_ms = self.since_ms  # when the writer looked last; a new run begins anew

    @property
    def due_at_ms(self) -> int:
        return self.since_ms + NO_PROGRESS_MS

    def fate(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self.reason = ""
        self.sessions = 0
        self.fates += 1

    def rest(self, now_ms: int) -> None:
        """Nothing could be sent."""
        self.since_ms = now_ms
        self.reason = ""

    def said(self, reason: str) -> None:
        """A reason for a standstill was reported."""
        self.reason = reason or self.reason

    def session_ended(self, *, sent: bool) -> None:
        """A session was lost. `sent`: something was sent over it. The fates that it brought were counted by `fate`."""
        if sent and not self.fates:
            self.sessions += 1
        self.fates = 0

    @property
    def pause_ms(self) -> int:
        """The pause before the next session: none after the first session without a fate, then doubling."""
        return min(REOPEN_MS_MIN * 2 ** min(self.sessions - 2, 10), REOPEN_MS_MAX) if self.sessions > 1 else 0

    @property
    def state(self) -> str:
        return next((state for word, state in STATES.items() if self.reason.startswith(word)), "")
