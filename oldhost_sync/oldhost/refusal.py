"""The consequences of an answer that ends the session: a table, and a sentence for people.

A send that OldHost has certainly not taken (the answer did not use up the nonce) is taken back: it does not count. If
none counts and the nonce turns out to be used after all, another writer has used it, and calling the operation applied
would lose it (I2). Only a send whose end leaves that open counts: an ambiguous one, and one with an unlisted answer,
which is kept with it and decides what the use of the nonce means (I14).
"""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.oldhost.ledger import Reserved
from oldhost_sync.oldhost.wire import Ambiguous, Answer, Banned, Busy, ConnectionInUse, Gap, Replay, Unlisted


@dataclass(frozen=True, slots=True)
class Unwritten:
    """No answer: the connection was lost before the first byte was written."""

    why: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """`takes_back`: this send does not count; `bans`: nothing is sent for a while; `halts`: an operator must decide."""

    takes_back: bool
    bans: bool = False
    halts: bool = False


_REFUSALS: dict[type[Answer | Unwritten], Refusal] = {
    Unwritten: Refusal(takes_back=True),
    Gap: Refusal(takes_back=True),
    Busy: Refusal(takes_back=True),
    ConnectionInUse: Refusal(takes_back=True),
    Banned: Refusal(takes_back=True, bans=True),
    Replay: Refusal(takes_back=True, bans=True),
    Unlisted: Refusal(takes_back=False),
    Ambiguous: Refusal(takes_back=False),
}
# Only another writer can have used the nonce.
_REPLAY_OF_A_FIRST_SEND = Refusal(takes_back=True, bans=True, halts=True)


def refusal(operation: Reserved, answer: Answer | Unwritten) -> Refusal:
    """What follows from `answer` to `operation`; a KeyError for an answer after which the session may go on."""
    if isinstance(answer, Replay) and not operation.sends:
        return _REPLAY_OF_A_FIRST_SEND
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


def why_halted(operation: Reserved, expected: int | None) -> str:
    """A sentence for operators about the replay of a first send. `expected`: OldHost's expected nonce, if it said."""
    nonce = operation.nonce
    begins = f"OldHost calls nonce {nonce} a replay, though we never sent it before: another client wrote to OldHost"
    if expected is not None and expected > nonce + 1:  # an operation that a proxy delivered twice would be the last
        return f"{begins}, up to nonce {expected - 1}. Decide by `resolve`."
    return (
        f"{begins}, or a proxy delivered change {operation.change_id} twice. Check whether OldHost has it, then "
        "decide: `resolve adopt` counts it as applied, `resolve resend` sends it again."
    )
