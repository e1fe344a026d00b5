"""The snapshot: the machine's state as plain JSON, compact and versioned, to be carried into the next run.

Waiting changes are stored by column, with ids and times as differences, the few type names as indexes, and UUIDs as
their 16 bytes: 25,000 of them compress to 0.18 MB, or to 0.48 MB when all entity ids are UUIDs. The snapshot is taken
while nothing is being sent. If the waiting changes are too many or too large to carry, they are left out and the new
run reads them from MariaDB.

A version is the number of the release that brings it. A run reads the versions up to its own release, whichever worker
began it, and rebuilds everything from MariaDB if the version is a newer one: so all workers that know the run's release
treat it alike.
"""

from __future__ import annotations

import json
import re
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple
from itertools import accumulate, repeat
from typing import Any

from oldhost_sync.policy.changes import ChangeRef, EntityKey, PriorityClass
from oldhost_sync.policy.machine.machine import Machine, Pause, Stuck
from oldhost_sync.policy.machine.outstanding_changes import Part
from oldhost_sync.policy.machine.release import RELEASE
from oldhost_sync.policy.machine.session import BreakerState, Phase
from oldhost_sync.policy.queue.coalescer import Hold
from oldhost_sync.policy.queue.operations import PendingOperation
from oldhost_sync.policy.tuning import CARRIED_MAX, WriterPolicy

VERSION = VERSION_MIN = 1
# Temporal refuses payloads above 2 MiB and retries the refused task for ever. Compressed, as the data converter does
# it, the waiting changes take at most half of that; the other half is for submissions and the little that remains.
WAITING_BYTES_MAX = 1024 * 1024
# The fastest: a fifth larger than level 6, but 0.1 s faster, and OldHost is idle until the new run starts.
COMPRESSION_LEVEL = 1

Snapshot = dict[str, Any]


def dump(machine: Machine) -> Snapshot:
    """The state as JSON values; `waiting` None when the waiting changes are too large to carry."""
    return {
        "version": VERSION,
        **_dump_changes(machine),
        "stuck": astuple(machine.stuck) if machine.stuck else None,
        "dead_letters": machine.outcomes.dead_letters,
        "loaded": machine.loaded,
        "txn_run": machine.coalescer.turns.robin.txn_run,
        "session": asdict(machine.session),
        "breaker": asdict(machine.breaker),
        "paused": asdict(machine.paused) if machine.paused else None,
        "rates": [machine.load.service_ms, machine.load.arrivals_per_s, machine.load.applied_per_s],
        "class_rates": list(machine.load.rates.values()),
        "forecast_breaks": dict(machine.load.breaks),
        "progress": asdict(machine.progress),
        "lost_answers": asdict(machine.lost_answers),
        "send_number": machine.send_number,
        "sweep": [machine.sweeping.after_id, machine.sweeping.at_ms],
        "probe_at_ms": machine.probe_at_ms,
    }


def _dump_changes(machine: Machine) -> Snapshot:
    coalescer, in_flight, loading = machine.coalescer, machine.in_flight, machine.loading
    carried = len(coalescer.waiting) + len(coalescer.holds) + len(loading.entities)
    few = carried <= CARRIED_MAX
    waiting = _as_text(_columns(coalescer.entries())) if few else ""
    holds = [[*entity, hold.dead, hold.left, hold.newest] for entity, hold in coalescer.holds.items() if few]
    fits = few and _fits(waiting, holds)
    received = machine.counters.received
    if not fits:  # the waiting changes are counted again when the new run reads them
        received -= len(coalescer.waiting)
    return {
        "waiting": waiting if fits else None,
        "in_flight": _columns(in_flight),
        "bound": list(in_flight.bound),
        "in_doubt": list(in_flight.in_doubt),
        "holds": holds if fits else [],
        "loading": [loading.part, loading.after_id] if fits else [Part.EMERGENCIES, 0],
        "to_load": [[*entity, after_id] for entity, after_id in loading.to_be_read().items()] if fits else [],
        "counters": {**asdict(machine.counters), "received": received},
    }


def load(snapshot: Snapshot | None, policy: WriterPolicy, now_ms: int, *, release: int = RELEASE) -> Machine:
    """The machine of the snapshot, `loaded` unless its waiting changes were left out; an empty one, which is to be
    rebuilt, if there is no snapshot or a run of this release can't read its version.
    """
    machine = Machine(policy, now_ms, release)
    if snapshot is None or snapshot.get("version") not in range(VERSION_MIN, release + 1):
        return machine
    behind_ms = snapshot.get("at_ms", 0) - now_ms
    if behind_ms > 0:
        snapshot = _set_back(snapshot, behind_ms)
    _restore(machine.counters, snapshot["counters"])
    machine.outcomes.dead_letters = snapshot["dead_letters"]
    _load_changes(machine, snapshot)
    _load_loading(machine, snapshot)
    machine.carried = True
    machine.loaded = snapshot["waiting"] is not None and snapshot["loaded"]
    _restore(machine.session, {**snapshot["session"], "phase": Phase(snapshot["session"]["phase"])})
    breaker = {**snapshot["breaker"], "state": BreakerState(snapshot["breaker"]["state"]), "ban_ms": policy.ban_ms}
    _restore(machine.breaker, breaker)
    machine.paused = Pause(**snapshot["paused"]) if snapshot["paused"] else None
    _load_rates(machine, snapshot)
    machine.stuck = Stuck(*snapshot["stuck"]) if snapshot["stuck"] else None
    _restore(machine.lost_answers, snapshot["lost_answers"])
    _restore(machine.progress, snapshot["progress"])
    machine.send_number = snapshot["send_number"]
    machine.sweeping.after_id, machine.sweeping.at_ms = snapshot["sweep"]
    machine.probe_at_ms = snapshot["probe_at_ms"]
    return machine


def _restore(part: object, values: Snapshot) -> None:
    """Into the part itself, which other parts hold, too. A name that it does not have is of a release that it knows."""
    for name, value in values.items():
        setattr(part, name, value)


def _load_rates(machine: Machine, snapshot: Snapshot) -> None:
    load = machine.load
    load.service_ms, load.arrivals_per_s, load.applied_per_s = snapshot["rates"]
    load.rates = dict(zip(load.rates, snapshot["class_rates"], strict=True))
    load.breaks = dict(snapshot["forecast_breaks"])


def _set_back(snapshot: Snapshot, by_ms: int) -> Snapshot:
    """Shift all times, because Temporal's clock was set back: what was due in a second stays due in a second."""
    moved = {**snapshot}
    for part, names in _INSTANTS.items():
        moved[part] = {**snapshot[part], **{name: _earlier(snapshot[part][name], by_ms) for name in names}}
    moved["sweep"] = [snapshot["sweep"][0], snapshot["sweep"][1] - by_ms]
    moved["probe_at_ms"] = snapshot["probe_at_ms"] - by_ms
    if snapshot["waiting"] is not None:
        columns = json.loads(snapshot["waiting"])
        for column in (6, 7):  # first and due, as differences from the time of acceptance
            columns[column] = [span + by_ms if column == 6 else span - by_ms for span in columns[column]]
        moved["waiting"] = _as_text(columns)
    return moved


_INSTANTS = {
    "session": ("until_ms",),
    "breaker": ("until_ms", "banned_at_ms", "told_at_ms"),
    "progress": ("since_ms",),
    "lost_answers": ("broken_until_ms",),
}


def _earlier(at_ms: int | None, by_ms: int) -> int | None:
    return None if at_ms is None else at_ms - by_ms


def _load_loading(machine: Machine, snapshot: Snapshot) -> None:
    """Restore what is still to be read from MariaDB."""
    part, machine.loading.after_id = snapshot["loading"]
    machine.loading.part = None if part is None else Part(part)
    for entity_type, entity_id, after_id in snapshot["to_load"]:
        machine.loading.entities[EntityKey(entity_type, entity_id)] = after_id


def _load_changes(machine: Machine, snapshot: Snapshot) -> None:
    coalescer, in_flight = machine.coalescer, machine.in_flight
    for entity_type, entity_id, dead, left, newest in snapshot["holds"]:
        coalescer.holds[EntityKey(entity_type, entity_id)] = Hold(list(dead), left=left, newest=newest)
    coalescer.turns.robin.txn_run = snapshot["txn_run"]
    if snapshot["waiting"] is not None:
        coalescer.restore(_entries(json.loads(snapshot["waiting"])))
    for entry in _entries(snapshot["in_flight"]):
        in_flight.enter(entry)
    in_flight.bound = list(snapshot["bound"])
    in_flight.in_doubt = list(snapshot["in_doubt"])


def _fits(waiting: str, holds: list[list[Any]]) -> bool:
    text = waiting + _as_text(holds) if holds else waiting
    return len(text) <= WAITING_BYTES_MAX or len(zlib.compress(text.encode(), COMPRESSION_LEVEL)) <= WAITING_BYTES_MAX


_CLASSES = {PriorityClass.EMERGENCY: "E", PriorityClass.TXN: "T", PriorityClass.LWW: "L"}
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BY_LETTER = {letter: cls for cls, letter in _CLASSES.items()}


def _as_text(columns: list[Any]) -> str:
    """One value instead of 400,000: Temporal's converter copies each single value, which took 0.15 s."""
    return json.dumps(columns, separators=(",", ":"))


def _columns(entries: Iterable[PendingOperation]) -> list[Any]:
    """[types, ids (differences), classes, type indexes, entity ids, accepted (differences), first, due (offsets),
    ready, UUIDs, properties].

    An entity id that is a UUID is "" in the entity ids, and is the next 16 bytes of the UUIDs (base64). The properties
    are [names, indexes], the first name "" for none; the column is omitted if no change has a property.
    """
    types: dict[tuple[str, str], int] = {}
    properties, property_indexes = {"": 0}, list[int]()
    ids, classes, type_indexes, entity_ids, accepted, first, due, ready = [], [], [], [], [], [], [], []
    uuids = bytearray()
    last_id = last_at = 0
    for entry in entries:
        ref = entry.ref
        uuid = _uuid_bytes(ref.entity_id)
        uuids += uuid
        ids.append(ref.change_id - last_id)
        classes.append(_CLASSES[ref.priority_class])
        type_indexes.append(types.setdefault((ref.entity_type, ref.event_type), len(types)))
        entity_ids.append("" if uuid else ref.entity_id)
        accepted.append(ref.accepted_at_ms - last_at)
        first.append(ref.accepted_at_ms - entry.first_at_ms)
        due.append(entry.due_at_ms - ref.accepted_at_ms)
        ready.append("1" if entry.ready else "0")
        property_indexes.append(properties.setdefault(ref.property_id, len(properties)))
        last_id, last_at = ref.change_id, ref.accepted_at_ms
    names = [list(pair) for pair in types]
    packed = b2a_base64(uuids, newline=False).decode()
    last = [[list(properties), property_indexes]] if len(properties) > 1 else []
    return [names, ids, "".join(classes), type_indexes, entity_ids, accepted, first, due, "".join(ready), packed, *last]


def _entries(columns: list[Any]) -> Iterator[PendingOperation]:
    names, steps, letters, type_indexes, entity_ids, accepted, first, due, ready = columns[:9]
    uuids = _uuid_texts(a2b_base64(columns[9]))
    properties, property_indexes = columns[10] if len(columns) > 10 else ([""], repeat(0, len(steps)))
    ids, instants = accumulate(steps), accumulate(accepted)
    rows = zip(ids, letters, type_indexes, entity_ids, instants, first, due, ready, property_indexes, strict=True)
    for change_id, letter, index, entity_id, at_ms, before, after, flag, its in rows:
        entity_type, event_type = names[index]
        names_of_entity = (entity_type, entity_id or next(uuids))
        ref = ChangeRef(change_id, _BY_LETTER[letter], *names_of_entity, event_type, at_ms, properties[its])
        yield PendingOperation(ref, at_ms - before, at_ms + after, flag == "1")


def _uuid_bytes(entity_id: str) -> bytes:
    """The 16 bytes of a UUID in its usual form; empty for any other text, as it would not be restored unchanged."""
    return bytes.fromhex(entity_id.replace("-", "")) if _UUID.fullmatch(entity_id) else b""


def _uuid_texts(packed: bytes) -> Iterator[str]:
    digits = packed.hex()
    for at in range(0, len(digits), 32):
        one = digits[at : at + 32]
        yield f"{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}"
