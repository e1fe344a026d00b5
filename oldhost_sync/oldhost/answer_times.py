"""How long this host's answers take, and what follows: when the next operation is marked SENT, and how long a reply is
waited for. Pure; in seconds of a monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.oldhost.session_limits import SessionLimits

# An answer read this quickly had already arrived before the read, so how long it took is not known.
AT_ONCE_SECONDS = 0.001

# When to mark. The margin: that of the limits, and so many times the slowest recent transaction.
TRANSACTIONS = 2.0
# Less than this share of the expected time is not waited for: it costs more than it saves.
WORTH_SHARE = 0.5
# A quicker answer or a slower transaction counts at once, others by this share.
OTHERS_SHARE = 0.1

# When to give a reply up.
# This many operations must be answered first: by then a slower kind of them has usually occurred (8 s at 400 ms).
KNOWN_AFTER = 20
# After this many answered operations the slowest answer counts half; a host's pause each minute is still remembered.
HALF_LIFE = 1_000
# Added to the slowest answer; docs/decisions/reply-timeout.md compares other values.
FACTOR = 2.0
MARGIN_SECONDS = 0.1
# A quicker host may still be delayed by its operating system, or by ours.
LEAST_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class AnswerTime:
    """When the answer to an operation came, as far as the thread knows that also works with the database meanwhile.

    `began`: before the first byte was written. `listened`: it listened until then, before it worked; None if it did not
    listen. `worked`: with the database until then. `heard`: the whole answer. `came`: it came while it listened.
    """

    began: float
    listened: float | None
    worked: float
    heard: float
    came: bool

    @property
    def at(self) -> float:
        """When it came; the latest possible time if that is not known."""
        return self.listened if self.came and self.listened is not None else self.heard

    @property
    def seconds(self) -> float | None:
        """How long it took; None if it came at some time during the work."""
        is_known = self.came or self.heard - self.worked > AT_ONCE_SECONDS
        return self.at - self.began if is_known else None

    @property
    def seconds_at_least(self) -> float | None:
        """How long it took, or how long it certainly had not come; None if nothing is known."""
        if self.seconds is not None or self.listened is None:
            return self.seconds
        return self.listened - self.began


class MarkTime:
    """When to mark the next operation SENT: shortly before OldHost's answer to the one on the wire is expected.

    A successor can't know whether a marked operation was written. If its worker is killed with one that was not, it
    waits for the settle time; with none marked, OldHost's next expected nonce proves at once that all before it are
    applied. So the mark comes late. But a mark that is not committed when the answer arrives keeps OldHost idle.

    Knows one session's quickest recent answers and slowest recent marks.
    """

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


class ReplyTimeout:
    """How long to wait for the reply to an operation: somewhat longer than this host's slowest recent answer.

    Giving up is always safe, since recovery asks OldHost and the settle time counts from the mark. Giving up too soon
    costs a new session, and if OldHost rejects that operation, the rejection is lost. So the slowest answer counts, not
    a usual one; it decays slowly; and after a timeout the full request timeout applies until an operation is answered.

    One for each host, kept across sessions; used by the thread that holds the wire.
    """

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
