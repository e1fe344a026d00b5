"""What is asked and done about an operation of which nobody knows whether the host took it: its answer was lost, or the
process that sent it.

One table, by what the host can do. Its rows are in order: the first one that fits is used, so a host that offers more
is asked for what proves most. Where nothing is known, an operation is never sent again on a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, Repeats


class Counts(StrEnum):
    """Where the number comes from that the host wants next."""

    NEVER = "never"  # the ledger alone knows it
    EXPECTED = "expected"  # the host is asked
    LAST = "last"  # it is asked for the last operation that it took; its own is one more


class Resends(StrEnum):
    """Which operations go again as they were, though nothing is known of them. Always after the late time: a copy that
    is still on its way could arrive behind the next operation, and then nothing tells the host that it is one.
    """

    NEVER = "never"  # an operator decides
    ANY = "any"  # a host that took the operation refuses it
    LAST = "last"  # the last one, if the host was not restarted: if it took that, it repeats its answer


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """A row of the table; `row`: its name for people.

    `proves_applied`: a number before the one that the host wants next was applied; else it was used, and may have been
    rejected. `outcomes`: the host is asked what became of operations in doubt, after the count of those that it says
    were used.
    """

    row: str
    counts: Counts = Counts.NEVER
    proves_applied: bool = False
    outcomes: bool = False
    resends: Resends = Resends.NEVER

    @property
    def has_count(self) -> bool:
        return self.counts is not Counts.NEVER

    @property
    def asks(self) -> bool:
        """Whether the host tells anything about an operation in doubt."""
        return self.has_count or self.outcomes

    @property
    def replay_means_used(self) -> bool:
        """Whether a refusal of an operation that was sent before is all that the host tells of it."""
        return not self.asks

    @property
    def one_in_doubt(self) -> bool:
        """Whether an answer must be recorded before the next operation is marked. With a second one in doubt, the last
        answer and an operator's word would leave open which of the two is meant.
        """
        return not self.asks or self.counts is Counts.LAST


PROVES_APPLIED = RecoveryPlan("its expected number proves applied", Counts.EXPECTED, proves_applied=True)
PROVES_USED = RecoveryPlan("its expected number proves used", Counts.EXPECTED)
USED_AND_OUTCOME = RecoveryPlan(
    "its expected number proves used, and outcomes can be asked", Counts.EXPECTED, outcomes=True
)
OUTCOME = RecoveryPlan("outcomes can be asked", outcomes=True)
LAST_OUTCOME = RecoveryPlan("the last outcome can be asked", Counts.LAST, outcomes=True)
LAST_ANSWER = RecoveryPlan("it repeats its last answer", resends=Resends.LAST)
REFUSES = RecoveryPlan("it refuses a used number", resends=Resends.ANY)
NOTHING = RecoveryPlan("nothing")


def plan(can: Capabilities) -> RecoveryPlan:
    """The row for a host that can do this."""
    match can:
        case Capabilities(expected=Expects.APPLIED):
            return PROVES_APPLIED
        case Capabilities(expected=Expects.USED, outcome=AskedOutcomes.NEVER):
            return PROVES_USED
        case Capabilities(expected=Expects.USED):
            return USED_AND_OUTCOME
        case Capabilities(outcome=AskedOutcomes.BY_NUMBER | AskedOutcomes.BY_ID):
            return OUTCOME
        case Capabilities(outcome=AskedOutcomes.LAST):
            return LAST_OUTCOME
        case Capabilities(repeated=Repeats.LAST_ANSWER):
            return LAST_ANSWER
        case Capabilities(repeated=Repeats.REFUSED):
            return REFUSES
    return NOTHING
