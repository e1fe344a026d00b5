"""Epoch seconds that never jump: wall time at the start, then the monotonic clock."""

import time


class Clock:
    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()
