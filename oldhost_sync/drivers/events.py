"""What a host's answers mean: one closed set of values for every kind of host. A driver reads them from its wire.

An answer that arrived whole and that the host's protocol does not list, or that is about another number than ours, is
:class:`Unlisted`; none, or a part of one, is :class:`Ambiguous`, which no driver says. After both the request may have
been applied or not, or may still be applied. Neither ever becomes :class:`Applied`.

No word from outside is in a sentence (`why`, `surprise`) but for `Said.words` and a rejection's reason: sentences are
shown to viewers and stored in Temporal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

# No ban and no pause is longer; a larger number is garbage. We ask far more often anyway.
RETRY_AFTER_SECONDS_MAX = 86_400.0
# The ledger stores nonces as BIGINT (up to 2^63 - 1) and must be able to continue counting from the host's number. A
# counter that began at 0 never gets this far: a larger number is garbage, or a counter that overflowed.
NONCE_MAX = 2**62
INCARNATION_LENGTH_MAX = 64
REASON_LENGTH_MAX = 512

# ------------------------------------------------------------------------------------------- answers to an operation


@dataclass(frozen=True, slots=True)
class Said:
    """A complete answer as the host gave it. `kind`: in the driver's words, "status 503", "code 17" or "answer", which
    group such letters (`alert_cause`). `words`: its body, by `words` below.
    `rejects`: if our number is used, it was a rejection; otherwise that is left open. `used`: it says that our number
    is used, whatever else it says. `refuses`: it is about this operation, and not about the connection or all of them.
    """

    kind: str
    words: str
    rejects: bool = False
    used: bool = False
    refuses: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}" if self.words else f"{self.kind}, without a body"


def words(data: bytes) -> str:
    """What the host said, for people to read: shortened, with what can't be printed escaped."""
    text = data[: 4 * REASON_LENGTH_MAX].decode(errors="backslashreplace")
    escaped = "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)
    return escaped[:REASON_LENGTH_MAX].strip()


@dataclass(frozen=True, slots=True)
class Applied:
    """Our own number is used, the operation done. `surprise`: what else it says contradicts that, if anything does.
    `by_earlier_send`: it says only that the number is used, by a send of ours whose answer is not known; no driver says
    that.
    """

    expected: int | None
    surprise: str = ""
    by_earlier_send: bool = False

    def names_earlier_than(self, nonce: int) -> bool:
        """Whether it names a next nonce that is not beyond ours (or out of range), though it calls ours applied."""
        return bool(self.surprise) and (self.expected is None or self.expected <= nonce)


@dataclass(frozen=True, slots=True)
class Rejected:
    """Refused for its content. `consumed`: the number is used up; `is_told`: the host itself says so."""

    reason: str
    consumed: bool
    is_told: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class Gap:
    """Our number is too high: not consumed, no other harm."""

    expected: int


@dataclass(frozen=True, slots=True)
class Replay:
    """Our number was used before; a ban may begin. `retry_after` in seconds, None if not given."""

    expected: int | None
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class Banned:
    """Nothing is taken from us for a while: not consumed. `retry_after` in seconds, None if not given."""

    retry_after: float | None


@dataclass(frozen=True, slots=True)
class Busy:
    """Not now, not consumed: send the same bytes again after `retry_after` seconds."""

    retry_after: float


@dataclass(frozen=True, slots=True)
class ConnectionInUse:
    """Another connection is open; the host closes this one. Not consumed."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """The host can't read the operation: not consumed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A complete answer that the protocol does not have. It never proves an apply (I14): what the host expects next
    tells whether the number was used, and its status what that means.

    `says_yes`: it says yes without naming a number; `refuses`: any request of ours would be answered so.
    """

    why: str
    says_yes: bool = field(default=False, compare=False)
    refuses: NoService | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """No complete answer: only the expected nonce decides. `unreadable`: bytes arrived that are not an answer."""

    why: str
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class NoService:
    """We are not served at all: not just this operation is refused. `reason`: see `OpeningPostponed`.

    `retry_after`: the seconds that we are asked to wait; None: none. `asks_all_to_wait`: that pause is for all clients.
    """

    reason: str
    why: str
    retry_after: float | None = None
    asks_all_to_wait: bool = False

    def __str__(self) -> str:
        return self.why


Answer = Applied | Rejected | Gap | Replay | Banned | Busy | ConnectionInUse | Malformed | Unlisted | Ambiguous

# -------------------------------------------------------------------------------------------- answers to a question


@dataclass(frozen=True, slots=True)
class Expected:
    """The number that the host wants next."""

    nonce: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """It wants a number that the ledger can't count from; `said`: that number, shortened."""

    said: str


Told = Expected | OutOfRange | Banned | Busy | ConnectionInUse | NoService


@dataclass(frozen=True, slots=True)
class Ready:
    """The greeting is over. `expected`: the number that the host says it wants next, None: it says none.
    `incarnation`: what tells one start of the host from another, of limited length; empty: nothing does.
    """

    expected: int | None = None
    incarnation: str = ""


class ToldFate(StrEnum):
    """What the host says became of an operation."""

    APPLIED = "applied"
    REJECTED = "rejected"
    NOT_TAKEN = "not_taken"  # nothing with that number or key was taken; asked for the last one: nothing ever
    UNKNOWN = "unknown"  # it does not know, or no more


@dataclass(frozen=True, slots=True)
class OutcomeTold:
    """The outcome of the operation that was asked for; `number`: its number, None: none is told. Where only the last
    outcome can be asked, this may be another operation than ours. Of a rejection: its `reason`, data from outside, and
    whether it has `consumed` the number.
    """

    fate: ToldFate
    number: int | None
    reason: str = ""
    consumed: bool = True


# ------------------------------------------------------------------------------------------- during and after both


@dataclass(frozen=True, slots=True)
class Working:
    """The host lives, the answer takes longer."""


@dataclass(frozen=True, slots=True)
class Write:
    """These bytes have to be written now, such as an acknowledgement."""

    data: bytes


class ConnectionEnd(StrEnum):
    """Why OldHost's connection carries nothing more, each cause apart: what to do about them has nothing in common."""

    NONE = ""
    STRAY = "bytes came behind its answer"
    OLD_VERSION = "it speaks HTTP/1.0"
    ANNOUNCED = "its answer says 'Connection: close'"
    LAST = "its answer says that it is the last one"
    WITH_ANSWER = "its answer ends with the connection"
    QUIET = "without announcing it"


@dataclass(frozen=True, slots=True)
class Closing:
    """After this answer the connection carries nothing more."""

    ending: ConnectionEnd


# What ends an exchange.
End = Answer | Told | OutcomeTold | Ready
Event = End | Working | Write | Closing


@dataclass(frozen=True, slots=True)
class Reply:
    """What ended an exchange. `ending`: why the connection carries nothing more, if it does not. `said`: the answer to
    an operation in its own words; None for one that ends it by the protocol, and for a question.
    """

    event: End
    ending: ConnectionEnd = ConnectionEnd.NONE
    said: Said | None = None

    @property
    def reusable(self) -> bool:
        """Whether the connection may carry the next request."""
        return self.ending is ConnectionEnd.NONE
