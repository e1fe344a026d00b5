"""How long to wait for the reply to an operation: somewhat longer than this host's slowest recent answer.

Giving up is always safe, since recovery asks OldHost and the settle time counts from the mark. Giving up too soon costs
a new session, and if OldHost rejects that operation, the rejection is lost. So the slowest answer counts, not a usual
one; it decays slowly; and after a timeout the full request timeout applies until an operation is answered.
"""

from __future__ import annotations

# This many operations must be answered first: by then a slower kind of them has usually occurred (8 s at 400 ms).
KNOWN_AFTER = 20
# After this many answered operations the slowest answer counts half; a host's pause each minute is still remembered.
HALF_LIFE = 1_000
# Added to the slowest answer; docs/decisions/reply-timeout.md compares other values.
FACTOR = 2.0
MARGIN_SECONDS = 0.1
# A quicker host may still be delayed by its operating system, or by ours.
LEAST_SECONDS = 0.3


class ReplyTimeout:
    """The reply timeout of one host, kept across sessions; used by the thread that holds the wire. In seconds."""

    def __init__(self, factor: float = FACTOR, half_life: int = HALF_LIFE) -> None:
        self._factor = factor
        self._keeps = 0.5 ** (1 / half_life)
        self._slowest = 0.0
        self._operations = 0
        self._given_up_since: float | None = None  # when the last exchange that was given up began

    def wait_seconds(self, most: float) -> float:
        """How long to wait for the reply to an operation; `most` while too little is known."""
        if self._operations < KNOWN_AFTER or self._given_up_since is not None:
            return most
        return min(most, max(LEAST_SECONDS, self._factor * self._slowest + MARGIN_SECONDS))

    def answered(self, seconds: float, *, operation: bool) -> None:
        """An exchange took this long. Only an `operation` proves that OldHost answers operations."""
        if operation:
            self._operations += 1
            self._slowest *= self._keeps
            self._given_up_since = None
        self._slowest = max(self._slowest, seconds)

    def gave_up(self, began: float) -> None:
        """The operation that began then got no reply."""
        self._given_up_since = began

    def found_unfinished(self, now: float) -> None:
        """OldHost is still working on the operation that timed out, if one did: it is slow, its reply was not lost."""
        if self._given_up_since is not None:
            self._slowest = max(self._slowest, now - self._given_up_since)
