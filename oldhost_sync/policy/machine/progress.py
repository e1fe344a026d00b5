"""Progress: how long no change has got its fate while something could be sent, and the last reason that was reported.

A session that opens but brings no fate is no progress. Such sessions in a row are counted, and the pauses between them
get longer. Where answers are lost, or end sessions, there is progress, but it is slow: after a lost answer, the
operation is found applied or sent again after the settle time; so OldHost gets a tenth of what it could.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oldhost_sync.policy.tuning import NO_PROGRESS_MS, REOPEN_MS_MAX, REOPEN_MS_MIN

# The state that `status` shows, if the last reason for the standstill begins with this word.
STATES = {
    "busy": "BUSY",
    "unsteady": "UNSTEADY",
    "unreadable": "UNREADABLE",
    "credentials": "UNAUTHORIZED",
    "refused": "REFUSED",
    "tls": "UNTRUSTED",
    "silent": "SILENT",
}
# A host may need a minute for an operation: it stands still after as many of these, and not in each of them.
SLOW_OPERATIONS = 2
# While something can be sent and is sent, the writer looks when it may stand still. If it did not for this much longer,
# nobody ran it: no worker, or no Temporal, of which the relay tells.
NOT_RUN_MS = 5_000
# If one answer in fifty is lost, three in a row are lost once in 125,000 sends.
LOST_ANSWERS = 3
# So many broken sessions in this time; and none in it before they count as steady again.
BROKEN_SESSIONS = 5
BROKEN_SESSIONS_MS = 600_000
# Answers that end a session and are conditions of their own.
TOLD_OTHERWISE = frozenset({"", "banned", "replay"})


@dataclass
class Progress:
    """`since_ms`: when the last fate arrived, or when something could be sent again. `reason`: the last reported reason
    why none arrives. `sessions`: how many in a row brought none. `patience_ms`: no fate for this long is a standstill.
    """

    since_ms: int
    reason: str = ""
    sessions: int = 0
    fates: int = 0
    patience_ms: int = NO_PROGRESS_MS

    def __post_init__(self) -> None:
        self.looked_at_ms = self.since_ms  # when the writer looked last; a new run begins anew

    @property
    def due_at_ms(self) -> int:
        """When it is a standstill, unless a fate arrives before."""
        return self.since_ms + self.patience_ms

    @property
    def stands_still(self) -> bool:
        """Whether it was a standstill at the last look."""
        return self.looked_at_ms >= self.due_at_ms

    def look(self, now_ms: int, *, sendable: bool, service_ms: float = 0.0) -> None:
        """`sendable`: something could be sent; `service_ms`: OldHost's time for an operation, as far as it is known."""
        was_not_run = not self.stands_still and now_ms - self.looked_at_ms > self.patience_ms + NOT_RUN_MS
        self.patience_ms = max(NO_PROGRESS_MS, round(SLOW_OPERATIONS * service_ms))
        if not sendable or was_not_run:
            self.since_ms = now_ms
            self.reason = ""
        self.looked_at_ms = now_ms

    def fate(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self.reason = ""
        self.sessions = 0
        self.fates += 1

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


@dataclass
class LostAnswers:
    """`in_a_row` so far, the last one for this `reason`. `broken_at_ms`: when answers ended the last few sessions.
    `broken_until_ms`: until then, sessions break again and again, the last one by the answer `broken_by`.
    """

    in_a_row: int = 0
    reason: str = ""
    broken_at_ms: list[int] = field(default_factory=list)
    broken_until_ms: int = 0
    broken_by: str = ""

    @property
    def are_many(self) -> bool:
        return self.in_a_row >= LOST_ANSWERS

    def note(self, *, ended: bool, in_doubt: bool, reason: str) -> None:
        """Count a send's end: `ended`, it brought fates; `in_doubt`, something of it is in doubt."""
        if ended:
            self.in_a_row = 0
        elif in_doubt:
            self.in_a_row += 1
            self.reason = reason

    def note_session(self, refusal: str, reason: str, now_ms: int) -> None:
        """Count a send's end: `refusal`, the kind of answer that ended the session; empty if none did."""
        if refusal in TOLD_OTHERWISE:
            return
        self.broken_at_ms = [*self.broken_at_ms[1 - BROKEN_SESSIONS :], now_ms]
        are_many = len(self.broken_at_ms) == BROKEN_SESSIONS and now_ms - self.broken_at_ms[0] <= BROKEN_SESSIONS_MS
        if are_many or now_ms < self.broken_until_ms:
            self.broken_until_ms = now_ms + BROKEN_SESSIONS_MS
            self.broken_by = reason
