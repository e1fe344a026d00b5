"""What a kind of host can do. Drivers declare it, and the defaults are the most suspicious.

Each claim decides what is done after an ambiguous end (`ambiguity.py`), so a wrong one loses or repeats an operation.
The driver kit tests them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Expects(StrEnum):
    """What the number proves that the host expects next: all before it are ..."""

    NEVER = "never"  # it can't be asked
    USED = "used"  # applied or rejected
    APPLIED = "applied"


class AskedOutcomes(StrEnum):
    """Which operation's outcome can be asked for."""

    NEVER = "never"
    LAST = "last"  # the last one that it took
    BY_NUMBER = "by_number"
    BY_ID = "by_id"  # by the idempotency key


class Repeats(StrEnum):
    """What an operation gets whose number was used before."""

    DONE_TWICE = "done_twice"
    PUNISHED = "punished"  # a ban
    REFUSED = "refused"
    LAST_ANSWER = "last_answer"  # for the last number: its answer again


class Resets(StrEnum):
    """When the host begins to count anew."""

    NEVER = "never"
    SESSION = "session"
    DAY = "day"


class RejectionUses(StrEnum):
    """Whether a rejected operation uses up its number."""

    YES = "yes"
    NO = "no"
    SAYS = "says"  # its answer tells


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`gapless`: a number that is too high is refused. `modulus`: numbers wrap at it (None: never), and after the
    highest comes `lowest`, which is the first one after a reset, too. `speaks_unasked`: bytes may arrive while nothing
    was asked.
    """

    expected: Expects = Expects.NEVER
    outcome: AskedOutcomes = AskedOutcomes.NEVER
    repeated: Repeats = Repeats.DONE_TWICE
    rejection_uses: RejectionUses = RejectionUses.SAYS
    resets: Resets = Resets.NEVER
    gapless: bool = True
    modulus: int | None = None
    lowest: int = 0
    speaks_unasked: bool = False


# Of numbers that wrap: with fewer, the two that may be in doubt at once could be confused with those a round before.
NUMBERS_MIN = 8


def not_carried(can: Capabilities) -> str:
    """What of these claims sessions do not follow yet, as a sentence; empty: nothing."""
    if can.resets is not Resets.NEVER and not can.gapless:
        return f"its numbers begin anew (resets = {can.resets}) and may have gaps, so nothing would show that they did"
    if can.resets is not Resets.NEVER and can.modulus is not None:
        return f"its numbers begin anew (resets = {can.resets}) and wrap, which sessions do not follow yet"
    if can.modulus is not None and can.modulus - can.lowest < NUMBERS_MIN:
        return (
            f"its numbers wrap (modulus = {can.modulus}) after less than {NUMBERS_MIN}: two in doubt would be confused"
        )
    return ""


OLDHOST = Capabilities(expected=Expects.USED, repeated=Repeats.PUNISHED)
