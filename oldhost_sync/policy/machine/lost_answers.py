"""Lost answers, and sessions that OldHost's answers break: there is progress, but it is slow, and nobody would be told.

After a lost answer, the operation is found applied or sent again after the settle time; so OldHost gets a tenth of what
it could. An answer that contradicts what we know (a gap that is none, a foreign page) ends the session, although
changes get their fates in between; that is told when it happens again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oldhost_sync.policy.machine.alerts import Alerts

# If one answer in fifty is lost, three in a row are lost once in 125,000 sends.
LOST_ANSWERS_ALERT = 3
# So many broken sessions in this time; and none in it before the alert is closed.
BROKEN_SESSIONS_ALERT = 5
BROKEN_SESSIONS_MS = 600_000
# Answers that end a session and have alerts of their own.
TOLD_OTHERWISE = frozenset({"", "banned", "replay"})


@dataclass
class LostAnswers:
    """`in_a_row` so far. `alert_is_open`: the alert about them is. `broken_at_ms`: when sessions were broken last;
    `broken_is_told`: the alert about that is open.
    """

    in_a_row: int = 0
    alert_is_open: bool = False
    broken_at_ms: list[int] = field(default_factory=list)
    broken_is_told: bool = False

    def note(self, alerts: Alerts, *, ended: bool, in_doubt: bool, reason: str) -> None:
        """Count a send's end: `ended`, it brought fates; `in_doubt`, something of it is in doubt."""
        if ended:
            self.in_a_row = 0
            if self.alert_is_open:
                alerts.answers_are_back()
            self.alert_is_open = False
        elif in_doubt:
            self.in_a_row += 1
            if self.in_a_row >= LOST_ANSWERS_ALERT and not self.alert_is_open:
                self.alert_is_open = True
                alerts.answers_are_lost(self.in_a_row, reason)

    def note_session(self, alerts: Alerts, refusal: str, reason: str, now_ms: int) -> None:
        """Count a send's end: `refusal`, the kind of answer that ended the session; empty if none did."""
        if refusal not in TOLD_OTHERWISE:
            self.broken_at_ms = [*self.broken_at_ms[1 - BROKEN_SESSIONS_ALERT :], now_ms]
            many = len(self.broken_at_ms) == BROKEN_SESSIONS_ALERT
            if many and now_ms - self.broken_at_ms[0] <= BROKEN_SESSIONS_MS and not self.broken_is_told:
                self.broken_is_told = True
                alerts.sessions_break(BROKEN_SESSIONS_ALERT, reason)
        elif self.broken_is_told and now_ms - self.broken_at_ms[-1] >= BROKEN_SESSIONS_MS:
            self.broken_is_told = False
            alerts.sessions_hold()
