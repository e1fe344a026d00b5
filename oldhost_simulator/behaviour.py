"""What kind of host it is: what it tells, what it does with a number that comes again, and how it counts.

Without options it is OldHost (docs/protocol.md).
"""

from dataclasses import dataclass
from typing import Final, Literal

EXPECTED: Final = ("never", "used", "applied")
OUTCOMES: Final = ("never", "last", "by_number", "by_id")
REPEATED: Final = ("punished", "refused", "last_answer", "done_twice")
REJECTION_USES: Final = ("yes", "no", "says")
RESETS: Final = ("never", "session", "day")
DAY_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """`expected`: whether it tells which number it wants next, and what that proves: all before are used, or applied.

    `outcome`: of which operation it can be asked what became of it. `repeated`: what a number gets that was used
    before; the last answer is given again for the last number only, and not after a restart. `rejection_uses`: whether
    a rejected operation uses its number; says: as the fault wants it, and the answer tells. `gapless`: a number that is
    too high is refused. `resets`: when it begins to count anew, from `lowest`. `modulus`: after the number before this
    one comes `lowest`. `lags_seconds`: it tells what it wanted next so long ago. `logon_expected`: the answer to a
    logon tells it, too. `incarnation`: that answer has a text that is another one after each start.
    """

    expected: Literal["never", "used", "applied"] = "used"
    outcome: Literal["never", "last", "by_number", "by_id"] = "never"
    repeated: Literal["punished", "refused", "last_answer", "done_twice"] = "punished"
    rejection_uses: Literal["yes", "no", "says"] = "says"
    gapless: bool = True
    resets: Literal["never", "session", "day"] = "never"
    day_seconds: float = DAY_SECONDS
    modulus: int | None = None
    lowest: int = 0
    lags_seconds: float = 0.0
    logon_expected: bool = True
    incarnation: bool = True

    def __post_init__(self) -> None:
        choices = (("expected", EXPECTED), ("outcome", OUTCOMES), ("repeated", REPEATED), ("resets", RESETS))
        for name, allowed in (*choices, ("rejection_uses", REJECTION_USES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be {', '.join(allowed)}, not {getattr(self, name)}")
        if self.lowest < 0 or (self.modulus is not None and self.modulus < self.lowest + 2):
            raise ValueError("lowest must be 0 or more, and modulus at least two more than it")
        if not 0 < self.day_seconds < float("inf") or not 0 <= self.lags_seconds < float("inf"):
            raise ValueError("a day is longer than 0 s, and a lag 0 s or more")
        if self.expected == "applied" and self.rejection_uses != "no":
            raise ValueError("a number proves applied only if rejection_uses is no")

    @property
    def numbers(self) -> int | None:
        """How many there are, before they come again."""
        return None if self.modulus is None else self.modulus - self.lowest

    def day(self, at: float) -> int:
        """The number of the day at that time, epoch seconds."""
        return int(at // self.day_seconds)


OLDHOST: Final = Behaviour()
