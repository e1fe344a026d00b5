"""How much one token may use in a minute: a token bucket for each of requests, changes and emergencies.

A bucket contains a minute's quota and is refilled at an even rate. So a burst of a whole minute's quota is accepted at
once, and after that a client waits only until its next request fits. Pure: `now` in seconds, monotonic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

What = Literal["requests", "changes", "emergencies"]

# An application's 300 changes a second, one per request, are 18,000 a minute; one API process answers some 600 requests
# a second. So no normal client is limited, and a client in an endless loop leaves room for others.
REQUESTS_PER_MINUTE = 60_000
# The batch route takes some 3,000 changes a second, and a legitimate import may use all of it.
CHANGES_PER_MINUTE = 200_000
# OldHost takes 2.5 operations a second, so 150 a minute are all that can be sent. The peak's 10,000 changes, sent as
# fast as an application writes them (33 s, 200 emergencies), are within the quota; an endless loop is not.
EMERGENCIES_PER_MINUTE = 150


@dataclass(frozen=True, slots=True)
class Quotas:
    """For each token and minute; 0: no limit."""

    requests: int = REQUESTS_PER_MINUTE
    changes: int = CHANGES_PER_MINUTE
    emergencies: int = EMERGENCIES_PER_MINUTE

    def of(self, what: What) -> int:
        found: int = getattr(self, what)
        return found


class Bucket:
    """A minute's quota; `per_minute` 0: no limit."""

    def __init__(self, per_minute: int, now: float) -> None:
        self._full = float(per_minute)
        self._level = self._full
        # The refill that was lost because the bucket was full, since the last `take_of_others`.
        self._spilt = 0.0
        self._at = now

    def wait_for(self, count: int, now: float) -> float:
        """Seconds until `count` can be taken: 0 now, infinite if they are more than a minute's quota."""
        if not self._full or not count:
            return 0.0
        if count > self._full:
            return math.inf
        self._fill(now)
        return max(0.0, (count - self._level) * 60 / self._full)

    def take(self, count: int, now: float) -> None:
        """Take `count`, without a check; a negative count is put back."""
        if self._full:
            self._fill(now)
            self._level = min(self._full, max(-self._full, self._level - count))

    def take_of_others(self, count: int, now: float) -> None:
        """Take what other processes have taken since the last such call. It is first covered by the refill that was
        lost in that time because this bucket was full. A use beyond the quota has to be waited for, a minute at most.
        """
        if self._full:
            self._fill(now)
            self._level = max(-self._full, self._level - max(0.0, count - self._spilt))
            self._spilt = 0.0

    def _fill(self, now: float) -> None:
        level = self._level + (now - self._at) * self._full / 60
        self._spilt = min(self._full, self._spilt + max(0.0, level - self._full))
        self._level, self._at = min(self._full, level), now
