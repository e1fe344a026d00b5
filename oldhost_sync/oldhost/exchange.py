"""An exchange: what a session reports to its listener about each operation that it wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oldhost_sync.oldhost.ledger import Reserved


@dataclass(frozen=True, slots=True)
class Exchange:
    """One operation, once on the wire for `seconds`. `answer`: its kind, as in metrics; "ambiguous" if there was none.

    `accepted_at_ms`: when the operation's change was accepted; None if the writer did not send it.
    """

    operation: Reserved
    epoch: int
    answer: str
    seconds: float
    accepted_at_ms: int | None


# Called by the thread that holds the wire: it must do no IO and raise nothing.
ExchangeListener = Callable[[Exchange], None]
