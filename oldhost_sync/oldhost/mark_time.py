"""When to mark the next operation SENT: shortly before OldHost's answer to the one on the wire is expected.

A successor can't know whether a marked operation was written. If its worker is killed with one that was not, it waits
for the settle time; with none marked, OldHost's next expected nonce proves at once that all before it are applied. So
the mark comes late. But a mark that is not committed when the answer arrives keeps OldHost idle.
"""

from __future__ import annotations

from oldhost_sync.oldhost.limits import SessionLimits

# The margin: that of the limits, and so many times the slowest recent transaction.
TRANSACTIONS = 2.0
# Less than this share of the expected time is not waited for: it costs more than it saves.
WORTH_SHARE = 0.5
# A quicker answer or a slower transaction counts at once, others by this share.
OTHERS_SHARE = 0.1


class MarkTime:
    """Knows one session's quickest recent answers and slowest recent marks. In seconds."""

    def __init__(self, limits: SessionLimits) -> None:
        self._least_margin = limits.mark_margin_seconds
        self._most_margin = limits.send_within_seconds / 2  # an older mark is renewed
        self._answer: float | None = None
        self._transaction = 0.0

    @property
    def wait_seconds(self) -> float:
        """From the writing of an operation to the mark of the next one; 0 while no answer is known."""
        expected = self._answer or 0.0
        wait = expected - min(self._most_margin, self._least_margin + TRANSACTIONS * self._transaction)
        return wait if wait >= WORTH_SHARE * expected else 0.0

    def answered(self, seconds: float) -> None:
        """An operation was answered after this time, or after more, if nobody listened in between."""
        known = self._answer if self._answer is not None else seconds
        self._answer = min(seconds, known + OTHERS_SHARE * (seconds - known))

    def marked(self, seconds: float) -> None:
        """The transaction of a mark took this long."""
        known = self._transaction
        self._transaction = max(seconds, known + OTHERS_SHARE * (seconds - known))
