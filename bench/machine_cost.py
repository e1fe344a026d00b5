"""Does the machine's work per operation stay the same as the backlog grows? Pure policy, one process, no IO.

A backlog of ready and debounced keys is kept at its size: for each operation one change comes in, one is decided on,
sent and reported, which is what the workflow does to the machine in production. Also: what the most waiting keys that
are carried weigh as a snapshot, and how long a new run needs to take them over.
"""

from __future__ import annotations

import gc
import json
import random
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from bench.result import Picture, Result, Series, median
from bench.stage import Stage
from bench.workload import EVENTS
from oldhost_sync.policy.changes import ChangeRef, ChangeResult, Outcome, PriorityClass
from oldhost_sync.policy.machine import snapshot
from oldhost_sync.policy.machine.actions import OpenSession, Send
from oldhost_sync.policy.machine.events import SendEnded, SessionOpened
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.tuning import CARRIED_MAX, WriterPolicy
from oldhost_sync.roles.process import hold_many_objects

BACKLOGS = (100, 1_000, 10_000, 50_000)
START_MS = 1_800_000_000_000
STEP_MS = 400
# In steady state the debounced are what came in during one debounce: some 40 keys at any backlog, the rest is ready.
DEBOUNCE_MS = 20_000

IdOf = Callable[[int, random.Random], str]


def measure(stage: Stage) -> Result:
    result = Result(
        "machine",
        "Work per operation as the backlog grows",
        conditions=[
            "the pure machine in one process, no IO",
            "mix 80 % LWW, 18 % TXN, 2 % EMERGENCY, one change in for each operation out, backlog held at its size",
            f"CPU of this process, collector's thresholds as in worker.py; median of {1 if stage.quick else 3} rounds",
        ],
    )
    operations, rounds = (1_000, 1) if stage.quick else (4_000, 3)
    plain = {backlog: median([_cost_us(backlog, operations, seed) for seed in range(rounds)]) for backlog in BACKLOGS}
    with worker_collector():
        costs = {
            backlog: median([_cost_us(backlog, operations, seed) for seed in range(rounds)]) for backlog in BACKLOGS
        }
    smallest = costs[BACKLOGS[0]]
    result.table(
        "CPU per operation",
        ("waiting changes", "µs per operation", "ratio to 100", "µs with Python's own collector settings"),
        [(backlog, cost, cost / smallest, plain[backlog]) for backlog, cost in costs.items()],
    )
    result.notes.append(
        f"From 100 to 50,000 waiting the machine takes {costs[BACKLOGS[-1]] - smallest:.0f} µs more an operation "
        "(heaps are "
        "log n deep, and 50,000 keys no longer fit the processor's cache); the promise is about the whole operation, "
        "some 5,000 µs, which `waiting` measures."
    )
    _measure_snapshot(result)
    result.pictures.append(
        Picture(
            "machine",
            "Machine CPU per operation",
            "waiting changes (log)",
            "µs",
            [Series("µs per operation", [(float(backlog), cost) for backlog, cost in costs.items()])],
            log_x=True,
        )
    )
    return result


def short_id(number: int, _chance: random.Random) -> str:
    return f"u-{number * 7919 % 1_000_003:06}"


def random_uuid(_number: int, chance: random.Random) -> str:
    return str(UUID(int=chance.getrandbits(128)))


def machine_with(backlog: int, seed: int = 1, id_of: IdOf = short_id) -> tuple[Machine, random.Random]:
    """A machine with an open session, a paused clock, and `backlog` waiting changes."""
    machine = Machine(WriterPolicy(debounce_ms=DEBOUNCE_MS), START_MS)
    machine.finish_loading(START_MS)
    machine.sweeping.at_ms = machine.probe_at_ms = START_MS * 2
    chance = random.Random(seed)
    ages = sorted((chance.randrange(backlog * STEP_MS) for _ in range(backlog)), reverse=True)
    machine.enqueue((_ref(number, chance, START_MS - age, id_of) for number, age in enumerate(ages, start=1)), START_MS)
    assert any(isinstance(action, OpenSession) for action in machine.decide(START_MS))
    machine.opening_ended(SessionOpened(1, "queue", 1), START_MS)
    machine.sweeping.at_ms = machine.probe_at_ms = START_MS * 2
    return machine, chance


@contextmanager
def worker_collector() -> Iterator[None]:
    """The collector's thresholds that a worker sets."""
    thresholds = gc.get_threshold()
    gc.collect()
    hold_many_objects()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _cost_us(backlog: int, operations: int, seed: int) -> float:
    machine, chance = machine_with(backlog, seed)
    gc.collect()
    now_ms, nonce, change_id = START_MS, 1, backlog
    sends = _sends(machine, now_ms)
    began, done = time.process_time(), 0
    while done < operations:
        send = sends.pop(0)
        came = [_ref(change_id + number, chance, now_ms) for number in range(1, len(send.change_ids) + 1)]
        change_id += len(came)
        machine.enqueue(came, now_ms)
        fates = [ChangeResult(one, Outcome.APPLIED.value, nonce + index) for index, one in enumerate(send.change_ids)]
        nonce, done = nonce + len(fates), done + len(fates)
        now_ms += STEP_MS * len(fates)
        machine.send_ended(send.number, SendEnded(fates, service_ms=400.0), now_ms)
        sends += _sends(machine, now_ms)
        while not sends:  # what is left is debounced
            now_ms += STEP_MS
            sends = _sends(machine, now_ms)
        machine.wake_at_ms()
    return (time.process_time() - began) / done * 1e6


def _sends(machine: Machine, now_ms: int) -> list[Send]:
    return [action for action in machine.decide(now_ms) if isinstance(action, Send)]


def _ref(number: int, chance: random.Random, at_ms: int, id_of: IdOf = short_id) -> ChangeRef:
    cls = chance.choices([PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY], (80, 18, 2))[0]
    return ChangeRef(number, cls, "unit", id_of(number, chance), EVENTS[cls], at_ms)


def _measure_snapshot(result: Result) -> None:
    carried = {"short ids": _carried(short_id), "UUIDs as ids": _carried(random_uuid)}
    result.table(
        f"{CARRIED_MAX:,} waiting keys, the most that are carried",
        ("", "snapshot as JSON, KB", "compressed, KB", "dump, CPU s", "load, CPU s"),
        [(name, each.text_kb, each.packed_kb, each.dumped_s, each.loaded_s) for name, each in carried.items()],
    )
    for name, each in carried.items():
        result.target(
            f"snapshot of {CARRIED_MAX:,} waiting keys, {name}, compressed", each.packed_kb / 1000, "<=", 1.0, "MB"
        )
    short = carried["short ids"]
    result.target(
        f"dump and load of {CARRIED_MAX:,} waiting keys (policy alone, CPU)",
        short.dumped_s + short.loaded_s,
        "<=",
        0.25,
        "s",
    )


@dataclass(frozen=True, slots=True)
class Carried:
    """A snapshot's size, and what it takes to make and to read it; medians."""

    text_kb: float
    packed_kb: float
    dumped_s: float
    loaded_s: float


def _carried(id_of: IdOf) -> Carried:
    machine, _ = machine_with(CARRIED_MAX - 1, id_of=id_of)
    dumped: list[float] = []
    loaded: list[float] = []
    with worker_collector():
        for _ in range(3):
            began = time.process_time()
            text = json.dumps(snapshot.dump(machine), separators=(",", ":")).encode()
            packed = zlib.compress(text, snapshot.COMPRESSION_LEVEL)
            dumped.append(time.process_time() - began)
            began = time.process_time()
            snapshot.load(json.loads(zlib.decompress(packed)), WriterPolicy(), START_MS)
            loaded.append(time.process_time() - began)
    return Carried(len(text) / 1000, len(packed) / 1000, median(dumped), median(loaded))
