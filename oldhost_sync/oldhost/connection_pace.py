"""When a host that refuses us may be connected to again: after growing pauses, and never sooner than it asks.

A host, proxy or firewall that wants credentials, has too many requests or is down gives the same answer to each new
connection, and may lock us out for good if there are many. So there are at most six a minute.
"""

from __future__ import annotations

from oldhost_sync.oldhost.refused_request import RefusedRequest
from oldhost_sync.policy.events import OpeningPostponed

# From one refused question to the next connection; the last one stays. So there are connections after 0, 1, 3, 7, 15,
# 31 and 61 s.
QUESTION_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# From one refused operation. The first may be the fault of that operation alone, and whether its nonce is used can be
# asked at once; then there is one connection each settle time anyway. An emergency of another unit must not wait
# longer.
OPERATION_PAUSES = (0.0, 12.5)


class ConnectionPace:
    """One host's, kept across openings. In seconds, on the caller's clock.

    Questions may be answered while operations are refused; then an answered question proves nothing.
    """

    def __init__(self) -> None:
        self._refused: dict[bool, int] = {True: 0, False: 0}  # in a row: operations, questions
        self._not_before = 0.0
        self._refusal: RefusedRequest | str = ""  # the last one

    def refused(
        self, now: float, refusal: RefusedRequest | str, seconds_max: float, *, operation: bool = False
    ) -> OpeningPostponed:
        """A request was refused. `refusal`: how; a text, if by no answer that can be read. `seconds_max`: the longest
        pause that is granted.
        """
        self._refused[operation] += 1
        self._refusal = refusal
        pauses = OPERATION_PAUSES if operation else QUESTION_PAUSES
        pause = pauses[min(self._refused[operation], len(pauses)) - 1]
        asked = refusal.retry_after or 0.0 if isinstance(refusal, RefusedRequest) else 0.0
        self._not_before = max(self._not_before, now + max(pause, min(asked, seconds_max)))
        return self._postponed(now)

    def answered(self, *, operation: bool) -> None:
        """A request got an answer of the protocol."""
        self._refused[operation] = 0
        if not any(self._refused.values()):
            self._not_before = 0.0

    @property
    def is_operation_refused(self) -> bool:
        """Whether the last operation was: asking again and again before the settle time is over tells nothing new."""
        return self._refused[True] > 0

    def postpones(self, now: float) -> OpeningPostponed | None:
        """That no connection is due yet, and why."""
        return self._postponed(now) if now < self._not_before else None

    def _postponed(self, now: float) -> OpeningPostponed:
        refusal = self._refusal
        reason = refusal.reason if isinstance(refusal, RefusedRequest) else "unreadable"
        return OpeningPostponed(max(1, round(1000 * (self._not_before - now))), reason, str(refusal))
