"""What a corpus of runs must have met at least once, or it proves nothing."""

from __future__ import annotations

from collections.abc import Iterable

EXPECTED = (
    "ambiguous, found applied",
    "ambiguous, not applied and sent again",
    "a reply given up before its time",
    "late apply",
    "zombie fenced at RESERVED",
    "zombie fenced at SENT",
    "zombie attempt's result refused",
    "a send that was given up reported after all",
    "a worker was said to have ended",
    "a living worker was said to have ended",
    "continue-as-new",
    "continue-as-new with signals waiting",
    "deadlock retried",
    "ban survived",
    "stale task refused",
    "order inheritance used",
    "no-op",
    "stale",
    "superseded",
    "superseded in the lane",
    "hold after a rejection",
    "rejection that did not consume its nonce",
    "a lost rejection counted as applied",
    "a used nonce with an unlisted answer: unsure",
    "an unsure change confirmed",
    "a change that waits apart",
    "settle wait",
    "halt resolved",
    "rebuilt from the database",
    "COMMIT unknown",
    "worker drained",
    "id committed out of order",
    "reservation refused to overtake",
    "held at the reservation",
    "pending fate written later",
    "signals of a closed run recovered",
    "sent while a rebuild went on",
    "a run that was reset",
    "submit recorded",
    "a clock set back: database",
    "a clock set forward: database",
    "a clock set back: Temporal",
    "a clock set forward: Temporal",
    "paused, as the database says",
    "an operator's act in a rebuild",
    "an operator's act in a ban",
    "an operator's act in a halt",
    "gave back after a rejection",
    "gave back what was reserved",
    "a property's turn before an older change",
    "an urgent send behind another one",
)
# Seen now and then; too rare to be asked for.
RARE = (
    "sweep found a stray",
    "a change that waits apart retried",
    "a change that waits apart discarded",
    "withdraw: changes withdrawn",
    "undo: recorded anew",
)
# Seen at some kinds of host only.
AT_OTHERS = ("a halt that names an operation", "a used number came again")


class Sometimes:
    """Counters; one run's, or a corpus' sum."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys((*EXPECTED, *RARE, *AT_OTHERS), 0)

    def hit(self, what: str) -> None:
        self.counts[what] += 1

    def add(self, counts: dict[str, int]) -> None:
        for what, count in counts.items():
            self.counts[what] = self.counts.get(what, 0) + count

    def missing(self, expected: Iterable[str] = EXPECTED) -> list[str]:
        return [what for what in expected if not self.counts.get(what)]
