"""Answers a call: the host decides, the facts are written to the state file, applied to the host, then counted.

With this order, a kill at any moment leaves a state file that agrees with every answer given.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from oldhost_simulator.call import Call
from oldhost_simulator.host import Entry, Fact, FaultSource, Host, Rejection
from oldhost_simulator.state_file import StateFile
from oldhost_simulator.verdicts import Banned, Busy, Malformed, Rejected, Verdict


class CallHandler:
    def __init__(self, host: Host, faults: FaultSource, counters: Counters, state_file: StateFile | None) -> None:
        self.host = host
        self._faults = faults
        self._counters = counters
        self._state_file = state_file
        self._waiting: list[tuple[int, Future[None]]] = []

    def answer(self, call: Call, now: float, *, late: bool = False, rejection: Rejection | None = None) -> Verdict:
        self.record(self.host.due(now))
        if self.host.banned_until(now) is None:  # no event during a ban: a request must not extend it
            for event in self._faults.injected_events(call):
                self.record(self.host.facts_of(event, now))
        decision = self.host.decide(call, now, self._faults, late=late, rejection=rejection)
        self.record(decision.facts)
        self._counters.count(decision.verdict)
        return decision.verdict

    def record(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            if self._state_file is not None:
                self._state_file.append(fact)
            self.host.apply(fact)
            if isinstance(fact, Entry):
                self._counters.applied += fact.outcome == "applied"
                self._tell_waiting()

    def wait_for_entry(self, index: int) -> Future[None]:
        """The future is done as soon as the journal has an entry with that index."""
        future: Future[None] = Future()
        self._waiting.append((index, future))
        self._tell_waiting()
        return future

    def _tell_waiting(self) -> None:
        if not self._waiting:
            return
        length = len(self.host.journal)
        for index, future in self._waiting:
            if index < length and future.set_running_or_notify_cancel():
                future.set_result(None)
        self._waiting = [(index, future) for index, future in self._waiting if not future.done()]


@dataclass(slots=True)
class Counters:
    """What is counted while the simulator runs, and the share of time it was busy. Times are epoch seconds."""

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

    def count(self, verdict: Verdict) -> None:
        """Counts what was decided, whether or not the answer reached the client."""
        match verdict:
            case Banned():
                self.banned_requests += 1
            case Busy():
                self.busy_answers += 1
            case Malformed():
                self.malformed += 1
            case Rejected():
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
