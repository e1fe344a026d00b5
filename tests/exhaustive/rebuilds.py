"""A rebuild at every point: at each IO call of the scenario the writer's run is lost, and the next one knows only
MariaDB.

Ways in which a run is lost: it is terminated; it is terminated and the process whose call it is dies with it, before or
after the call's effect (a relay between its claim, its signal, the acknowledgement and its mark); it is terminated
after the call and has rebuilt itself before the process' next transaction (so between the acknowledgement of a signal
and the relay's mark); or it begins a new run whose snapshot was left behind. Order (I4) and everything else must hold
as without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from oldhost_sync.policy.tuning import WriterPolicy
from tests.exhaustive.scenario import NumberedFaults, Scenario
from tests.simulation.hub import Process
from tests.simulation.shape import Verdict
from tests.simulation.workflow_run import payload_of

# "die" and "after" are modes of the call itself (tests/simulation/faults.py): nothing of it happened, all of it but its
# reply did.
ENDED, ENDED_AND_DIED, ENDED_UNANSWERED = "ended", "ended, caller died", "ended, unanswered"
REBUILT_MEANWHILE, LEFT_BEHIND = "ended and rebuilt before the caller's next step", "snapshot left behind"
MODE_OF_THE_CALL = {ENDED_AND_DIED: "die", ENDED_UNANSWERED: "after"}
RELAYED_BY = ("relay", "worker")
# A signal is delivered 5 ms after its call began and acknowledged 5 ms later (tests/simulation/roles.py).
DELIVERED_S = 0.008
LATE_S = 4.0


@dataclass
class LosingRun(NumberedFaults):
    """At call `number` the writer's run is lost in this `way`."""

    number: int = -1
    way: str = ENDED
    scenario: Any = None
    lost: bool = field(default=False)

    def at(self, kind: str, process: Process, detail: str = "") -> str:
        here = self.on and len(self.calls) == self.number
        mode = super().at(kind, process, detail)
        if not here:
            return mode
        self.lost = True
        self.fired.append(self.number)
        if self.way == LEFT_BEHIND:
            self.scenario.renew_without_snapshot()
        elif self.way == REBUILT_MEANWHILE:
            process.late_s = LATE_S
            self.scenario.hub.after(DELIVERED_S, self.scenario.begin_anew)
        else:
            self.scenario.hub.soon(self.scenario.temporal.terminate)
        return MODE_OF_THE_CALL.get(self.way, "")


class RebuildScenario(Scenario):
    """The fixed life with one lost run. A run that is missing is begun again at once, as by the
    next signal or a watchdog."""

    def __init__(self, faults: LosingRun) -> None:
        super().__init__(faults)
        faults.scenario = self
        self._leave_behind = False

    def renew_without_snapshot(self) -> None:
        """A new policy makes the run continue as new; what crosses has no snapshot in it."""
        self._leave_behind = True
        policy = self.workflow_input().policy or WriterPolicy()
        policy.probe_ms += 1
        self.hub.soon(lambda: self.temporal.signal_with_start("configure", payload_of(policy)))

    def begin_anew(self) -> None:
        self.temporal.terminate()
        self.temporal.start(self.workflow_input())

    def carried(self, given: Any) -> Any:
        """What a new run is given by the old one."""
        if self._leave_behind:
            self._leave_behind = False
            given.snapshot = None
        return given


@dataclass(frozen=True, slots=True)
class RebuildCase:
    number: int
    way: str

    def __str__(self) -> str:
        return f"call {self.number}: {self.way}"


def cases() -> Iterator[tuple[str, RebuildCase]]:
    """Every call; where it is a relay's or a worker's COMMIT, signal or result, with its process as well."""
    _, scenario = play(RebuildCase(-1, ENDED))
    for number, (kind, who) in enumerate(scenario.faults.calls):
        ways = [ENDED, REBUILT_MEANWHILE, LEFT_BEHIND]
        if who.startswith(RELAYED_BY) and kind in {"commit", "signal", "result"}:
            ways += [ENDED_AND_DIED, ENDED_UNANSWERED]
        for way in ways:
            yield f"a rebuild, {way}", RebuildCase(number, way)


def play(case: RebuildCase) -> tuple[Verdict, RebuildScenario]:
    scenario = RebuildScenario(LosingRun({}, number=case.number, way=case.way))
    return scenario.play(), scenario
