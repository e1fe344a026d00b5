"""The dead letters that were decided lately: a send that began before may still report one as holding its entity."""

from __future__ import annotations

# Far more than are decided while a send is in flight.
DECIDED_MAX = 1_000


class DecidedLetters:
    """The last ones, by change id. One that is retried and rejected again is forgotten."""

    def __init__(self) -> None:
        self._ids: dict[int, None] = {}

    def __contains__(self, change_id: int) -> bool:
        return change_id in self._ids

    def note(self, change_id: int) -> None:
        self._ids[change_id] = None
        if len(self._ids) > DECIDED_MAX:
            del self._ids[next(iter(self._ids))]

    def forget(self, change_id: int) -> None:
        self._ids.pop(change_id, None)
