"""How many updates of applications may wait at a time. Temporal allows ten in flight per run, operators' included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# Updates that wait for a change's fate, up to 25 s each; further callers are told to ask by the idempotency key.
FATES_MAX = 4
# Those and the ones that wait for the database (10 s at most while it is away). Three places are for operators
# (`operator_acts.PENDING_MAX`); the tenth stays free, so that Temporal itself never refuses an update.
UPDATES_MAX = 6


class WaitingUpdates:
    """Counts the updates that wait."""

    def __init__(self) -> None:
        self._at_database = 0
        self._fates = 0

    def check_room(self) -> None:
        """Raises ValueError when one more would take a place reserved for operators."""
        if self._at_database + self._fates >= UPDATES_MAX:
            raise ValueError(
                f"{UPDATES_MAX} updates wait already: try again in a moment, with the same idempotency_key"
            )

    @property
    def may_wait_for_fate(self) -> bool:
        return self._fates < FATES_MAX

    @contextmanager
    def for_the_database(self) -> Iterator[None]:
        self._at_database += 1
        try:
            yield
        finally:
            self._at_database -= 1

    @contextmanager
    def for_a_fate(self) -> Iterator[None]:
        self._fates += 1
        try:
            yield
        finally:
            self._fates -= 1
