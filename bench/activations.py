"""How long can one activation of the writer's workflow be, whatever the shape of what waits? One process, one thread,
no IO.

Each shape is brought in as production does it, and then whatever may happen to it happens: one event, what the machine
decides on, the next wake-up, and the table for Temporal's UI; for a new run also the JSON of what is carried. Nobody
else is answered meanwhile, so the promise (I11) is 0.2 s for the slowest. The data converter's compression is no part
of it: it runs outside.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from bench.machine_cost import worker_collector
from bench.result import Result, median
from bench.stage import Stage
from oldhost_sync.policy.changes import HELD, WAITING, ChangeRef, ChangeResult, Outcome, PriorityClass
from oldhost_sync.policy.machine import operators, snapshot
from oldhost_sync.policy.machine.actions import Action, OpenSession, Send
from oldhost_sync.policy.machine.conditions import Reports
from oldhost_sync.policy.machine.events import (
    OpeningHalted,
    OpeningPostponed,
    OpeningResult,
    Probed,
    SendEnded,
    SessionOpened,
)
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.machine.session import Phase
from oldhost_sync.policy.machine.snapshot import Snapshot
from oldhost_sync.policy.tuning import CARRIED_MAX, WriterPolicy
from workflows import status_report
from workflows.messages import WireRef, from_wire, to_wire
from workflows.reception import BATCHES_AT_ONCE_MAX

ACTIVATION_SECONDS_MAX = 0.2
START_MS = 1_800_000_000_000
STEP_MS = 400
HOUR_MS = 3_600_000
RELAYED_REFS = 500 * BATCHES_AT_ONCE_MAX
BAN_MS = 900_000
ROUNDS = 3

_EMERGENCY, _TXN, _LWW = PriorityClass.EMERGENCY, PriorityClass.TXN, PriorityClass.LWW
Refs = Callable[[int], Iterator[ChangeRef]]


def _one_entity(cls: PriorityClass, size: int) -> Iterator[ChangeRef]:
    """LWW changes of one entity have a key each."""
    return (ChangeRef(n, cls, "unit", "hot", f"e{n if cls is _LWW else 0}", START_MS) for n in range(1, size + 1))


def _entities(cls: PriorityClass, size: int, age_ms: int = 0) -> Iterator[ChangeRef]:
    return (ChangeRef(n, cls, "unit", _uuid(n), "e", START_MS - age_ms) for n in range(1, size + 1))


def _uuid(number: int) -> str:
    digits = f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _behind_an_emergency(size: int) -> Iterator[ChangeRef]:
    """The last change of an entity that has many."""
    yield from _one_entity(_LWW, size - 1)
    yield ChangeRef(size, _EMERGENCY, "unit", "hot", "e", START_MS)


SHAPES: dict[str, Refs] = {
    "100,000 debounced keys, due at once": lambda size: _entities(_LWW, size),
    "100,000 keys in their lane": lambda size: _entities(_LWW, size, HOUR_MS),
    "100,000 TXN of as many entities": lambda size: _entities(_TXN, size),
    "100,000 emergencies": lambda size: _entities(_EMERGENCY, size),
    "100,000 TXN of one entity": lambda size: _one_entity(_TXN, size),
    "100,000 emergencies of one entity": lambda size: _one_entity(_EMERGENCY, size),
    "an emergency behind 100,000 keys of its entity": _behind_an_emergency,
    "TXN over 69 days": lambda size: (
        ChangeRef(n, _TXN, "unit", f"u{n}", "e", START_MS - (size - n) * 60_000) for n in range(1, size + 1)
    ),
}


class Writer:
    """A machine as the workflow drives it; `slowest`: CPU seconds of the longest activation by what happened in it."""

    def __init__(self) -> None:
        self.machine = Machine(WriterPolicy(), START_MS)
        self.machine.finish_loading(START_MS)
        self.reports = Reports(self.machine)
        self.now_ms = START_MS
        self.epoch = self.nonce = 0
        self.sends: list[Send] = []
        self.slowest: dict[str, float] = {}

    def happen(self, what: str, event: Callable[[Machine], object] = lambda _: None) -> list[Action]:
        """One activation."""
        self.now_ms += STEP_MS
        began = time.process_time()
        event(self.machine)
        actions = [*self.machine.decide(self.now_ms), *self.reports.due(self.now_ms)]
        self.machine.wake_at_ms()
        status_report.details(self.machine, self.now_ms)
        self._took(what, began)
        self.sends += [action for action in actions if isinstance(action, Send)]
        self.reports.recorded()
        if any(isinstance(action, OpenSession) for action in actions):
            self.open()
        return actions

    def _took(self, what: str, began: float) -> None:
        self.slowest[what] = max(self.slowest.get(what, 0.0), time.process_time() - began)

    def open(self) -> None:
        self.epoch += 1
        self.sends = []
        opened = SessionOpened(self.epoch, "queue", self.nonce + 1)
        self.opening_ends("a session opens", opened)

    def opening_ends(self, what: str, result: OpeningResult) -> None:
        """As if one had been requested."""
        self.machine.session.phase = Phase.OPENING
        self.happen(what, lambda machine: machine.opening_ended(result, self.now_ms))

    def relay(self, refs: Iterator[ChangeRef]) -> None:
        while page := [to_wire(ref) for ref in islice(refs, RELAYED_REFS)]:
            self.happen("refs come from the relay", partial(self._take, page))

    def _take(self, page: list[WireRef], machine: Machine) -> None:
        machine.enqueue([from_wire(item) for item in page], self.now_ms)

    def send(self, what: str, outcome: str = Outcome.APPLIED.value) -> None:
        """The first send on its way ends."""
        if not self.sends:
            return
        send = self.sends.pop(0)
        fates = []
        for change_id in send.change_ids:
            taken = outcome not in (HELD, WAITING)
            self.nonce += taken
            fates.append(ChangeResult(change_id, outcome, self.nonce if taken else None))
        self.happen(what, lambda machine: self._report(machine, send.number, fates))

    def _report(self, machine: Machine, number: int, fates: list[ChangeResult]) -> None:
        machine.send_ended(number, SendEnded(fates, service_ms=400.0), self.now_ms)

    def ask(self, query: str, answer: Callable[[Machine], object]) -> None:
        began = time.process_time()
        answer(self.machine)
        self._took(f"query {query}", began)

    def renew(self) -> None:
        """A new run. What comes from Temporal's own converter is made and read as it does it."""
        self.machine.draining = True
        while self.sends:
            self.send("sends end")
        began = time.process_time()
        text = json.dumps(snapshot.dump(self.machine), separators=(",", ":"))
        self._took("a run ends", began)
        loaded: list[Snapshot] = []
        began = time.process_time()
        loaded.append(json.loads(text))
        self.machine = snapshot.load(loaded[0], WriterPolicy(), self.now_ms)
        self._took("a run begins", began)


def play(refs: Iterator[ChangeRef]) -> dict[str, float]:
    """All that may happen while so much waits; gives CPU seconds by what happened."""
    writer = Writer()
    writer.open()
    writer.relay(refs)
    _look(writer)
    for _ in range(5):
        writer.send("operations are applied")
    writer.send("an operation is rejected", Outcome.DEAD.value)
    writer.send("an operation turns out to be held", HELD)
    writer.now_ms += 2 * 60_000
    for _ in range(5):
        writer.happen("keys fall due, a forecast")
    writer.happen("all is flushed", lambda machine: machine.coalescer.flush(None, writer.now_ms))
    for _ in range(5):
        writer.happen("what was flushed moves")
    writer.happen("a pause", lambda machine: operators.pause(machine, "ops", "why"))
    writer.happen("it goes on", operators.resume)
    writer.happen("the connection is lost", lambda machine: machine.probed(Probed(session_open=False), writer.now_ms))
    writer.opening_ends("a ban begins", OpeningPostponed(BAN_MS, "ban"))
    writer.happen("one more comes", lambda machine: machine.enqueue([_one_more(writer)], writer.now_ms))
    writer.now_ms += BAN_MS + 60_000
    writer.happen("the ban is over")
    writer.opening_ends("a halt", OpeningHalted("another client wrote"))
    writer.happen("it is resolved", lambda machine: operators.resolve(machine, writer.now_ms))
    writer.renew()
    writer.happen("and then")
    _look(writer)
    return writer.slowest


def _one_more(writer: Writer) -> ChangeRef:
    return ChangeRef(10**9, _EMERGENCY, "unit", "another", "e", writer.now_ms)


def _look(writer: Writer) -> None:
    entity = next((entry.ref.entity for entry in writer.machine.coalescer.waiting.values()), None)
    writer.ask("status", lambda machine: status_report.status(machine, "oldhost", writer.now_ms))
    writer.ask("upcoming", lambda machine: status_report.upcoming(machine, 200, START_MS))
    if entity is not None:
        writer.ask("find", lambda machine: status_report.find(machine, entity, writer.now_ms))


def measure(stage: Stage) -> Result:
    result = Result(
        "activations",
        "The slowest activation by the shape of what waits",
        conditions=[
            "the pure machine in one process and thread, CPU seconds, collector's thresholds as in worker.py",
            f"median of {ROUNDS} rounds; {CARRIED_MAX:,} changes at most are carried into a new run",
        ],
    )
    size = 20_000 if stage.quick else 100_000
    table = result.table("Slowest activation", ("shape", "what happened", "s", "the next slowest", "s"))
    with worker_collector():
        for shape, refs in [*SHAPES.items(), ("as many as are carried, UUIDs", _as_carried)]:
            found = _medians([_round(refs, size) for _ in range(1 if stage.quick else ROUNDS)])
            (first, first_s), (second, second_s) = found[:2]
            table.rows.append((shape, first, first_s, second, second_s))
            result.target(f"slowest activation, {shape}", first_s, "<=", ACTIVATION_SECONDS_MAX, "s")
    return result


def _as_carried(size: int) -> Iterator[ChangeRef]:
    return _entities(_LWW, min(size, CARRIED_MAX) - 1)


def _round(refs: Refs, size: int) -> dict[str, float]:
    gc.collect()
    return play(refs(size))


def _medians(rounds: list[dict[str, float]]) -> list[tuple[str, float]]:
    names = dict.fromkeys(name for each in rounds for name in each)
    middle = {name: median([each.get(name, 0.0) for each in rounds]) for name in names}
    return sorted(middle.items(), key=lambda item: -item[1])
