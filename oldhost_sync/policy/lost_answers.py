"""Lost answers: sends in a row of which none brought a readable answer.

After the settle time, each such operation is either found applied, or sent again. So there is progress, at about a
tenth of the possible rate, and the alert about a standstill would not be raised.
"""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.policy.alerts import Alerts

# If one answer in fifty is lost, three in a row are lost once in 125,000 sends.
LOST_ANSWERS_ALERT = 3


@dataclass
class LostAnswers:
    """`in_a_row` so far. `alert_is_open`: the alert about them is."""

    in_a_row: int = 0
    alert_is_open: bool = False

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
