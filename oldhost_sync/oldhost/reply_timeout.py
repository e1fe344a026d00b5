"""How long the reply to an operation is waited for: somewhat longer than this host's slowest answers of late.

Giving up is always safe, as recovery asks OldHost and the settle time counts from the mark. Giving up too soon costs a
new session, and where OldHost rejects what was given up nobody learns of it. So the slowest answer counts, not a usual
one; it is forgotten slowly; and after each wait that was in vain nothing is presumed until an operation is answered.
"""

from __future__ import annotations

# So many operations must be answered first: a slower kind of them is mostly seen by then (8 s at 400 ms).
KNOWN_AFTER = 20
# After so many answered operations the slowest answer counts half; one that pauses each minute is still remembered.
HALF_LIFE = 1_000
# Beyond the slowest answer: docs/architecture.md compares others.
FACTOR = 2.0
MARGIN_SECONDS = 0.1
# Whoever is quicker than that may still be held up by its operating system, or by ours.
LEAST_SECONDS = 0.3


class ReplyTimeout:
    """Of one host, kept from session to session; who holds the connection uses it. All in seconds."""

    def __init__(self, factor: float = FACTOR, half_life: int = HALF_LIFE) -> None:
        self._factor = factor
        self._keeps = 0.5 ** (1 / half_life)
        self._slowest = 0.0
        self._operations = 0
        self._given_up_since: float | None = None  # when the last exchange that was given up began

    def wait_seconds(self, most: float) -> float:
        """How long to wait for the reply to an operation; `most` as long as too little is known."""
        if self._operations < KNOWN_AFTER or self._given_up_since is not None:
            return most
        return min(most, max(LEAST_SECONDS, self._factor * self._slowest + MARGIN_SECONDS))

    def answered(self, seconds: float, *, operation: bool) -> None:
        """An exchange took so long. Only an `operation` that was done shows that operations are answered."""
        if operation:
            self._operations += 1
            self._slowest *= self._keeps
            self._given_up_since = None
        self._slowest = max(self._slowest, seconds)

    def gave_up(self, began: float) -> None:
        """No reply came to the operation that was begun then."""
        self._given_up_since = began

    def found_unfinished(self, now: float) -> None:
        """OldHost still has the operation that was given up, if one was: it is slow, its reply was not lost."""
        if self._given_up_since is not None:
            self._slowest = max(self._slowest, now - self._given_up_since)
