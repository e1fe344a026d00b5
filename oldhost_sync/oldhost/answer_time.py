"""When the answer to an operation came, as far as the thread knows that also works with the database meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

# An answer read this quickly had already arrived before the read, so how long it took is not known.
AT_ONCE_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class AnswerTime:
    """Times of one exchange, in seconds of a monotonic clock.

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
