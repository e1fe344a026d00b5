"""What the simulator counts while it runs, and the share of time it was busy. Times are epoch seconds."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    started_at: float
    requests: int = 0
    applied: int = 0
    rejected: int = 0
    banned_requests: int = 0
    busy_answers: int = 0
    malformed: int = 0
    connections: int = 0
    refused_connections: int = 0
    reset_connections: int = 0
    last_request_at: float | None = None
    busy_seconds: float = 0.0
    busy_since: float | None = None
    _window_at: float = 0.0
    _window_busy_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._window_at = self.started_at

    def begin_request(self, now: float) -> None:
        self.requests += 1
        self.last_request_at = now
        self.busy_since = now

    def end_request(self, now: float) -> None:
        if self.busy_since is not None:
            self.busy_seconds += now - self.busy_since
            self.busy_since = None

    def count_answer(self, status: int, error: str | None) -> None:
        """Counts what was decided, whether or not the answer reached the client."""
        if error == "banned":
            self.banned_requests += 1
        elif error == "busy":
            self.busy_answers += 1
        elif error == "malformed":
            self.malformed += 1
        elif status == 422:
            self.rejected += 1

    def reset_window(self, now: float) -> None:
        """Starts the busy share anew; all other counts, since the start, are kept."""
        self._window_at = now
        self._window_busy_seconds = self.busy_until(now)

    def busy_share(self, now: float) -> float:
        elapsed = now - self._window_at
        return (self.busy_until(now) - self._window_busy_seconds) / elapsed if elapsed > 0 else 0.0

    def window_seconds(self, now: float) -> float:
        return now - self._window_at

    def busy_until(self, now: float) -> float:
        """Seconds spent on requests since the start, including the running one up to now."""
        return self.busy_seconds + (now - self.busy_since if self.busy_since is not None else 0.0)
