"""Notices that OldHost's name leads elsewhere while the connection to the old address still lives.

An open connection shows nothing of that: a session could go on for weeks with a machine that OldHost's operators have
replaced. So the name is looked up now and then, and it has moved once several look-ups in a row found the same other
addresses. A name server that gives a different part of a longer list each time does not look like that.
"""

from __future__ import annotations

from oldhost_sync.oldhost.connection import Clock
from oldhost_sync.oldhost.look_up import LookUp, Resolve, SockAddress

NAME_WATCH_SECONDS = 20.0
# Look-ups in a row with the same addresses, all of them others than the connection's: a minute.
LOOK_UPS_TO_MOVE = 3


class NameWatch:
    """Watches one name; `has_moved` never waits, and one thread calls it. `clock`: monotonic seconds."""

    def __init__(self, name: str, port: int, clock: Clock, resolve: Resolve) -> None:
        self._name = name
        self._port = port
        self._clock = clock
        self._resolve = resolve
        self._next_at = 0.0
        self._look_up: LookUp | None = None
        self._in_use: SockAddress | None = None
        self._found: frozenset[SockAddress] = frozenset()
        self._times = 0

    def has_moved(self, in_use: SockAddress) -> bool:
        """Whether the name does not lead to `in_use`, the connection's address, any more."""
        if in_use[1][0] == self._name:  # an address, not a name
            return False
        if in_use != self._in_use:
            self._in_use, self._times = in_use, 0
        if self._look_up is None:
            if self._clock() >= self._next_at:
                self._next_at = self._clock() + NAME_WATCH_SECONDS
                self._look_up = LookUp(lambda: self._resolve(self._name, self._port))
        elif self._look_up.ended.is_set():
            self._note(self._look_up)
            self._look_up = None
        return self._times >= LOOK_UPS_TO_MOVE

    def _note(self, look_up: LookUp) -> None:
        found = frozenset(look_up.found)
        if not found:  # the name server is away, which proves nothing
            return
        is_same, self._found = found == self._found, found
        self._times = 0 if self._in_use in found else self._times + 1 if is_same else 1
