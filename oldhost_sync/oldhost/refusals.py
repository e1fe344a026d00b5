"""What follows when OldHost refuses something. Pure; tables, and sentences for people.

An operation: its answer ends the session. A send that OldHost has certainly not taken (the answer did not use up the
nonce) does not count. If none counts and the nonce turns out to be used after all, another writer has used it, and
calling the operation applied would lose it (I2). Only a send whose end leaves that open counts: an ambiguous one, and
one with an unlisted answer, which is kept with it and decides what the use of the nonce means (I14).

A connection, or any request over it: the opening is postponed, and the next connection comes after a growing pause.
"""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.drivers.ambiguity import plan
from oldhost_sync.drivers.capabilities import Capabilities, Repeats
from oldhost_sync.drivers.events import (
    Ambiguous,
    Answer,
    Banned,
    Busy,
    ConnectionEnd,
    ConnectionInUse,
    Gap,
    NoService,
    Replay,
    Unlisted,
)
from oldhost_sync.oldhost.ledger import Reserved
from oldhost_sync.policy.machine.events import OpeningPostponed

# From one refused question to the next connection; the last one stays. So there are connections after 0, 1, 3, 7, 15,
# 31 and 61 s.
QUESTION_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# From one refused operation. The first may be the fault of that operation alone, and whether its nonce is used can be
# asked at once; then there is one connection each settle time anyway. An emergency of another unit must not wait
# longer.
OPERATION_PAUSES = (0.0, 12.5)


# ----------------------------------------------------------------------------------------- an operation is refused


@dataclass(frozen=True, slots=True)
class Unwritten:
    """No answer: the connection was lost before the first byte was written."""

    why: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """`uncounts`: this send does not count; `bans`: nothing is sent for a while; `halts`: an operator must decide."""

    uncounts: bool
    bans: bool = False
    halts: bool = False


_REFUSALS: dict[type[Answer | Unwritten], Refusal] = {
    Unwritten: Refusal(uncounts=True),
    Gap: Refusal(uncounts=True),
    Busy: Refusal(uncounts=True),
    ConnectionInUse: Refusal(uncounts=True),
    Banned: Refusal(uncounts=True, bans=True),
    Unlisted: Refusal(uncounts=False),
    Ambiguous: Refusal(uncounts=False),
}


def refusal(operation: Reserved, answer: Answer | Unwritten, can: Capabilities) -> Refusal:
    """What follows from `answer` to `operation`; a KeyError for an answer after which the session may go on. `can`:
    what the host can do.
    """
    if isinstance(answer, Replay):
        # Only another writer can have used the nonce of a first send.
        return Refusal(uncounts=True, bans=can.repeated is Repeats.PUNISHED, halts=not operation.sends)
    if isinstance(answer, Gap) and not plan(can).has_count:
        return Refusal(uncounts=True, halts=True)  # no later question would show that it went back
    return _REFUSALS[type(answer)]


def kind(answer: Answer | Unwritten) -> str:
    """The answer's name in metrics and reports; an answer that can't be read is "unreadable"."""
    if isinstance(answer, Ambiguous) and answer.unreadable:
        return "unreadable"
    return type(answer).__name__.lower()


def why_ended(operation: Reserved, answer: Answer | Unwritten) -> str:
    """A sentence for people: which answer of OldHost, or lack of one, ended the session."""
    nonce = operation.nonce
    match answer:
        case Gap(expected):
            return f"OldHost calls nonce {nonce} a gap: it expects {expected}"
        case Replay():
            return f"OldHost calls nonce {nonce} a replay and bans us"
        case Banned():
            return "OldHost bans us"
        case Busy():
            return "OldHost stays busy"
        case ConnectionInUse():
            return "OldHost serves another connection"
        case Ambiguous(why) | Unlisted(why):
            return f"nonce {nonce} is in doubt: {why}"
        case Unwritten(why):
            return f"nonce {nonce} was not sent: {why}"
    return f"nonce {nonce}: {answer}"


def why_halted(operation: Reserved, answer: Answer | Unwritten) -> str:
    """A sentence for operators about a gap, or the replay of a first send."""
    nonce, expected = operation.nonce, expected_by(answer)
    if isinstance(answer, Gap):
        return (
            f"OldHost expects nonce {expected}, and our next one is {nonce}: it went back, as after a restore from a "
            "backup. Decide by `resolve`."
        )
    begins = f"OldHost calls nonce {nonce} a replay, though we never sent it before: another client wrote to OldHost"
    if expected is not None and expected > nonce + 1:  # an operation that a proxy delivered twice would be the last
        return f"{begins}, up to nonce {expected - 1}. Decide by `resolve`."
    return (
        f"{begins}, or a proxy delivered change {operation.change_id} twice. Check whether OldHost has it, then "
        "decide: `resolve adopt` counts it as applied, `resolve resend` sends it again."
    )


def expected_by(answer: Answer | Unwritten) -> int | None:
    """OldHost's expected nonce, if its refusal says it."""
    return answer.expected if isinstance(answer, Gap | Replay) else None


# ------------------------------------------------------------------------------------------------ we are refused


def why_hung_up(ending: ConnectionEnd, answers: int) -> tuple[str, str]:
    """The reason of an opening whose connection ended after so many answers, and a sentence: see `OpeningPostponed`."""
    if ending is ConnectionEnd.STRAY:
        return "unreadable", "bytes come behind OldHost's answer and belong to no request: look for a proxy in between"
    if ending is ConnectionEnd.QUIET and answers > 1:
        return "connection", f"OldHost closed the connection after {answers} answers"
    how = ending or ConnectionEnd.QUIET
    return "keep-alive", f"OldHost closes the connection after each answer ({how}): it must keep it open"


class ConnectionPace:
    """When a host that refuses us may be connected to again: after growing pauses, and never sooner than it asks.

    A host, proxy or firewall that wants credentials, has too many requests or is down gives the same answer to each new
    connection, and may lock us out for good if there are many. So there are at most six a minute.

    One for each host, kept across openings. In seconds, on the caller's clock.

    Questions may be answered while operations are refused; then an answered question proves nothing.
    """

    def __init__(self) -> None:
        self._refused: dict[bool, int] = {True: 0, False: 0}  # in a row: operations, questions
        self._not_before = 0.0
        self._refusal: NoService = NoService("unreadable", "")  # the last one

    def refused(
        self, now: float, refusal: NoService, seconds_max: float, *, operation: bool = False
    ) -> OpeningPostponed:
        """A connection or a request was refused. `seconds_max`: the longest pause that is granted."""
        self._refused[operation] += 1
        self._refusal = refusal
        pauses = OPERATION_PAUSES if operation else QUESTION_PAUSES
        pause = pauses[min(self._refused[operation], len(pauses)) - 1]
        asked = refusal.retry_after or 0.0
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
        return OpeningPostponed(max(1, round(1000 * (self._not_before - now))), refusal.reason, str(refusal))
