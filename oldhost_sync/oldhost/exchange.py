"""What a session tells of each operation that it wrote: an exchange, as it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oldhost_sync.oldhost.ledger import Reserved


@dataclass(frozen=True, slots=True)
class Exchange:
    """One operation on the wire, once, for `seconds`. `answer`: its kind, as in metrics; "ambiguous" when none came.

    `accepted_at_ms`: when the operation's change was accepted; None where the writer did not say.
    """

    operation: Reserved
    epoch: int
    answer: str
    seconds: float
    accepted_at_ms: int | None


# It is called by who holds the wire: it does no IO and raises nothing.
ExchangeListener = Callable[[Exchange], None]
