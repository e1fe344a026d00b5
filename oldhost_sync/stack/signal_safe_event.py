"""An event that a signal handler may set."""

from contextlib import suppress
from queue import Empty, SimpleQueue


class SignalSafeEvent:
    """Like threading.Event, but `set` may be called in a signal handler while the same thread is in `wait`.

    threading.Event takes a lock in both: a signal that arrives within `wait` would then wait for itself, for ever.
    SimpleQueue's `put` is documented as safe there. With several waiting threads, `set` wakes only one at once; the
    others return after their `seconds`.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wake_ups: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._wake_ups.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, for `seconds` at most; whether it is set."""
        if not self._is_set:
            with suppress(Empty):
                self._wake_ups.get(timeout=seconds)
        return self._is_set
