"""What Temporal keeps of each run: how it began and which signals it took. The recovery of unread signals reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payload

from activities.signal_recovery import Heartbeat, HistoryGone, RunEvents, RunStart, SignalEvent
from tests.simulation.hub import Hub
from workflows import messages

if TYPE_CHECKING:
    from tests.simulation.temporal import Server


@dataclass(eq=False)
class RunRecord:
    """One run's history, as far as it matters here."""

    run_id: str
    original_run_id: str
    continued_run_id: str
    given: messages.WriterInput
    argument: Payload
    signals: list[SignalEvent] = field(default_factory=list)
    # All that it took, of whatever kind, for a run that takes its place at a reset.
    taken: list[tuple[str, Payload, SignalEvent | None]] = field(default_factory=list)


class RunRecords:
    """All runs of the writer, the first one first."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._records: dict[str, RunRecord] = {}
        self._signals = 0

    def began(self, record: RunRecord) -> None:
        self._records[record.run_id] = record

    def signalled(self, run_id: str, name: str, payload: Payload) -> SignalEvent | None:
        """Acknowledged: it is in the run's history, read or not."""
        event = None
        if name == "submit_change":
            self._signals += 1
            event = SignalEvent(f"request-{self._signals}", datetime.fromtimestamp(self._hub.now, UTC), payload)
        self.given_again(run_id, name, payload, event)
        return event

    def given_again(self, run_id: str, name: str, payload: Payload, event: SignalEvent | None) -> None:
        """At a reset, under the id of its first request."""
        record = self._records[run_id]
        record.taken.append((name, payload, event))
        if event is not None:
            record.signals.append(event)

    def moved(self, name: str, payload: Payload, event: SignalEvent | None, old_run_id: str, new_run_id: str) -> None:
        """It came while the old run was ending: Temporal gives it to the new one."""
        old = self._records[old_run_id]
        old.taken = [one for one in old.taken if one[1] is not payload]
        if event is not None:
            old.signals.remove(event)
        self.given_again(new_run_id, name, payload, event)

    def before(self, run_id: str) -> list[str]:
        ids = list(self._records)
        return ids[: ids.index(run_id)][::-1]

    def record(self, run_id: str) -> RunRecord:
        if run_id not in self._records:
            raise HistoryGone(run_id)
        return self._records[run_id]


class SimulatedHistories:
    """The activity's way to them; each question takes its time, and Temporal may be away."""

    def __init__(self, server: Server, process: Any) -> None:
        self._server = server
        self._process = process

    def runs_before(self, host: str, run_id: str, beat: Heartbeat) -> list[str]:
        self._ask(beat)
        return self._server.records.before(run_id)

    def start_of(self, host: str, run_id: str) -> RunStart:
        self._ask(lambda: None)
        record = self._server.records.record(run_id)
        return RunStart(run_id, record.original_run_id, record.continued_run_id, record.given)

    def events_of(self, host: str, run_id: str, beat: Heartbeat) -> RunEvents:
        self._ask(beat)
        return RunEvents(list(self._server.records.record(run_id).signals))

    def _ask(self, beat: Heartbeat) -> None:
        self._server.hub.sleep(0.005 + self._server.hub.random.random() * 0.02)
        self._process.check()
        beat()
        if self._server.away:
            raise ConnectionError("Temporal is away")
