"""The circuit breaker before a server that may be away: requests fail at once, instead of each waiting for it."""

from __future__ import annotations

from collections.abc import Callable

from oldhost_sync.api.problems import Problem


class Circuit:
    """Whether the server is known away; if so, one probe per interval is let through. `now`: monotonic seconds."""

    def __init__(self, probe_seconds: float) -> None:
        self._probe_seconds = probe_seconds
        self._next_probe: float | None = None
        self._problem: Callable[[], Problem] | None = None

    @property
    def is_open(self) -> bool:
        return self._next_probe is not None

    def admits(self, now: float) -> bool:
        """Whether this request may try. While the circuit is open, only the first request after each interval may."""
        if self._next_probe is None:
            return True
        if now < self._next_probe:
            return False
        self._next_probe = now + self._probe_seconds
        return True

    def failed(self, now: float, problem: Callable[[], Problem]) -> None:
        """`problem`: makes the answer to each request that may not try."""
        self._next_probe = now + self._probe_seconds
        self._problem = problem

    def succeeded(self) -> None:
        self._next_probe = None

    def problem(self) -> Problem:
        """The answer to a request that may not try: what the last one that tried was told."""
        assert self._problem is not None, "only a circuit that has failed refuses"
        return self._problem()
