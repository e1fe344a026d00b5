"""Answers a call: the host decides, the facts are written to the state file, applied to the host, then counted.

With this order, a kill at any moment leaves a state file that agrees with every answer given.
"""

from collections.abc import Iterable
from concurrent.futures import Future

from oldhost_simulator.counters import Counters
from oldhost_simulator.facts import Entry, Fact
from oldhost_simulator.host import FaultSource, Host, Rejection
from oldhost_simulator.operation import Call
from oldhost_simulator.state_file import StateFile
from oldhost_simulator.wire import Answer


class CallHandler:
    def __init__(self, host: Host, faults: FaultSource, counters: Counters, state_file: StateFile | None) -> None:
        self.host = host
        self._faults = faults
        self._counters = counters
        self._state_file = state_file
        self._waiting: list[tuple[int, Future[None]]] = []

    def answer(self, call: Call, now: float, *, late: bool = False, rejection: Rejection | None = None) -> Answer:
        if self.host.banned_until(now) is None:  # no event during a ban: a request must not extend it
            for event in self._faults.injected_events(call):
                self.record(self.host.facts_of(event, now))
        decision = self.host.decide(call, now, self._faults, late=late, rejection=rejection)
        self.record(decision.facts)
        self._counters.count_answer(decision.answer.status, decision.answer.body.get("error"))
        return decision.answer

    def record(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            if self._state_file is not None:
                self._state_file.append(fact)
            self.host.apply(fact)
            if isinstance(fact, Entry):
                self._counters.applied += fact.outcome == "applied"
                self._tell_waiting()

    def wait_for_entry(self, index: int) -> "Future[None]":
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
