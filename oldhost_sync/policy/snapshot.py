"""The snapshot: the machine's state as plain JSON, compact and versioned, to be carried into the next run.

Waiting changes are stored by column, with ids and times as differences, the few type names as indexes, and UUIDs as
their 16 bytes: 25,000 of them compress to 0.18 MB, or to 0.48 MB when all entity ids are UUIDs. The snapshot is taken
while nothing is being sent. If the waiting changes are too many or too large to carry, they are left out and the new
run reads them from MariaDB; if the version is unknown, the new run rebuilds everything. A new version needs an entry in
`SNAPSHOT_SINCE` (policy/release.py); `_readable` in workflows/sync_writer.py marks the runs.
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

from oldhost_sync.policy.actions import RaiseAlert
from oldhost_sync.policy.breaker import Breaker, BreakerState
from oldhost_sync.policy.changes import ChangeRef, EntityKey, PriorityClass
from oldhost_sync.policy.counters import Counters
from oldhost_sync.policy.lost_answers import LostAnswers
from oldhost_sync.policy.machine import Machine
from oldhost_sync.policy.operators import Pause
from oldhost_sync.policy.pending_operation import Hold, PendingOperation
from oldhost_sync.policy.progress import Progress
from oldhost_sync.policy.rebuild import Part
from oldhost_sync.policy.release import RELEASE, RELEASE_MIN
from oldhost_sync.policy.session import Phase, SessionState
from oldhost_sync.policy.writer_policy import CARRIED_MAX, WriterPolicy

# Additional columns at the end of the waiting changes need no new version: older releases ignore them.
VERSION = 3
READABLE = (1, 2, 3)  # 1 had UUIDs as text; 1 and 2 contained the changes held behind dead letters
VERSION_HELD_IN_DATABASE = 3
# A run that starts with a later version marks that in its history, so that workers of two releases treat it alike.
VERSION_UNMARKED = 1
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
        **_dump_alerts(machine),
        "dead_letters": machine.dead_letters,
        "loaded": machine.loaded,
        "txn_run": machine.coalescer.turns.robin.txn_run,
        "session": _session_as_known(machine.session),
        "breaker": asdict(machine.breaker),
        "paused": asdict(machine.paused) if machine.paused else None,
        "rates": [machine.load.service_ms, machine.load.arrivals_per_s, machine.load.applied_per_s],
        "class_rates": list(machine.load.rates.values()),
        "progress": _renamed(asdict(machine.progress), open_alert="told"),
        "lost_answers": _renamed(asdict(machine.lost_answers), alert_is_open="told"),
        "batch": machine.send_number,
        "sweep": [machine.sweeping.after_id, machine.sweeping.at_ms],
        "probe_at_ms": machine.probe_at_ms,
    }


def _dump_changes(machine: Machine) -> Snapshot:
    coalescer, in_flight, loading = machine.coalescer, machine.in_flight, machine.loading
    carried = len(coalescer.waiting) + len(coalescer.holds) + len(loading.entities)
    few = carried <= CARRIED_MAX or machine.release == RELEASE_MIN
    waiting = _as_text(_columns(coalescer.entries())) if few else ""
    holds = [[*entity, hold.dead, hold.left, hold.newest] for entity, hold in coalescer.holds.items() if few]
    fits = few and _fits(waiting, holds)
    received = machine.counters.received
    if not fits:  # the waiting changes are counted again when the new run reads them
        received -= len(coalescer.waiting)
    return {
        "waiting": waiting if fits else None,
        "kept": _columns(in_flight),
        "bound": list(in_flight.bound),
        "unsettled": list(in_flight.in_doubt),
        "holds": holds if fits else [],
        "loading": [loading.part, loading.after_id] if fits else [Part.EMERGENCIES, 0],
        "to_load": [[*entity, after_id] for entity, after_id in loading.to_be_read().items()] if fits else [],
        "counters": {**asdict(machine.counters), "received": received},
    }


def _dump_alerts(machine: Machine) -> Snapshot:
    """The alerts that are open, and those that are not recorded yet."""
    coalesced_alerts = machine.coalesced_alerts
    return {
        "told": list(machine.load.open_alerts),
        "warned": list(machine.alerts.blocked),
        "stuck": machine.alerts.stuck,
        "untold": [astuple(alert) for alert in coalesced_alerts.unrecorded()],
        "told_emergencies": coalesced_alerts.emergencies_alert,
        "grouped": coalesced_alerts.grouped,
        "sequence": coalesced_alerts.sequence,
    }


def load(snapshot: Snapshot | None, policy: WriterPolicy, now_ms: int, *, release: int = RELEASE) -> Machine:
    """The machine of the snapshot, `loaded` unless its waiting changes were left out; an empty one, which is to be
    rebuilt, if there is no snapshot or this code can't read its version.
    """
    machine = Machine(policy, now_ms, release)
    if snapshot is None or snapshot.get("version") not in READABLE:
        return machine
    behind_ms = snapshot.get("at_ms", 0) - now_ms
    if behind_ms > 0:
        snapshot = _set_back(snapshot, behind_ms)
    machine.counters = Counters(**snapshot["counters"])
    machine.dead_letters = snapshot.get("dead_letters", 0)
    _load_changes(machine, snapshot)
    _load_loading(machine, snapshot)
    machine.carried = True
    machine.loaded = snapshot["waiting"] is not None and snapshot.get("loaded", True)
    machine.session = _session(snapshot["session"])
    breaker = snapshot["breaker"]
    machine.breaker = Breaker(**{**breaker, "state": BreakerState(breaker["state"]), "ban_ms": policy.ban_ms})
    machine.breaker.asks_again = machine.release > RELEASE_MIN
    machine.paused = Pause(**snapshot["paused"]) if snapshot["paused"] else None
    _load_rates(machine, snapshot)
    machine.alerts.blocked = list(snapshot.get("warned", []))
    if machine.release > RELEASE_MIN:
        _load_coalesced_alerts(machine, snapshot)
    machine.send_number = snapshot["batch"]
    machine.alerts.stuck = snapshot.get("stuck", 0)
    machine.sweeping.after_id, machine.sweeping.at_ms = snapshot["sweep"]
    machine.probe_at_ms = snapshot["probe_at_ms"]
    return machine


def _load_rates(machine: Machine, snapshot: Snapshot) -> None:
    load = machine.load
    load.service_ms, load.arrivals_per_s, load.applied_per_s = snapshot["rates"]
    load.rates = dict(zip(load.rates, snapshot.get("class_rates", load.rates.values()), strict=True))
    load.open_alerts = list(snapshot["told"])


def _set_back(snapshot: Snapshot, by_ms: int) -> Snapshot:
    """Shift all times, because Temporal's clock was set back: what was due in a second stays due in a second."""
    moved = {**snapshot}
    for part, names in _INSTANTS.items():
        if part in snapshot:
            moved[part] = {**snapshot[part], **{name: _earlier(snapshot[part].get(name), by_ms) for name in names}}
    moved["sweep"] = [snapshot["sweep"][0], snapshot["sweep"][1] - by_ms]
    moved["probe_at_ms"] = snapshot["probe_at_ms"] - by_ms
    if snapshot["waiting"] is not None:
        columns = json.loads(snapshot["waiting"])
        for column in (6, 7):  # first and due, as differences from the time of acceptance
            columns[column] = [span + by_ms if column == 6 else span - by_ms for span in columns[column]]
        moved["waiting"] = _as_text(columns)
    return moved


_INSTANTS = {"session": ("until_ms",), "breaker": ("until_ms", "banned_at_ms", "told_at_ms"), "progress": ("since_ms",)}


def _earlier(at_ms: int | None, by_ms: int) -> int | None:
    return None if at_ms is None else at_ms - by_ms


def _load_coalesced_alerts(machine: Machine, snapshot: Snapshot) -> None:
    coalesced_alerts = machine.coalesced_alerts
    coalesced_alerts.add(*(RaiseAlert(*alert) for alert in snapshot.get("untold", [])))
    for change_id in snapshot.get("warned", []):  # a run of release 1 had one alert for each
        coalesced_alerts.add(RaiseAlert("", "info", "", f"emergency:{change_id}", close=True))
    coalesced_alerts.blocked = []
    coalesced_alerts.emergencies_alert = _as_tuple(snapshot.get("told_emergencies"))
    coalesced_alerts.grouped = _as_tuple(snapshot.get("grouped"))
    coalesced_alerts.sequence = snapshot.get("sequence", 0)
    machine.lost_answers = LostAnswers(**_renamed(snapshot.get("lost_answers", {}), told="alert_is_open"))
    if "progress" in snapshot:
        machine.progress = Progress(**_renamed(snapshot["progress"], told="open_alert"))


def _renamed(fields: Snapshot, **names: str) -> Snapshot:
    """`fields` in the same order, some with another name: in stored snapshots they keep the name they had first."""
    return {names.get(name, name): value for name, value in fields.items()}


# Fields of a session that have another name in stored snapshots.
_KNOWN_AS = {"sessions_without_progress": "fruitless", "bound_list_was_cut": "more_bound"}


def _session_as_known(session: SessionState) -> Snapshot:
    """With the field names that every release reads, and without fields that an earlier one does not know."""
    dumped = asdict(session)
    del dumped["urgent_sends"]  # only used to see whether a session sent anything; the next session counts again
    for name, known in _KNOWN_AS.items():
        dumped[known] = dumped.pop(name)
    return dumped


def _session(carried: Snapshot) -> SessionState:
    carried = {**carried, "phase": Phase(carried["phase"])}
    for name, known in _KNOWN_AS.items():
        if known in carried:
            carried[name] = carried.pop(known)
    if "next_nonce" in carried:  # its name in versions before 0.2
        carried["opened_at_nonce"] = carried.pop("next_nonce")
    return SessionState(**carried)


def _as_tuple(carried: list[Any] | None) -> Any:
    return None if carried is None else tuple(carried)


def _load_loading(machine: Machine, snapshot: Snapshot) -> None:
    """Restore what is still to be read from MariaDB."""
    if machine.release == RELEASE_MIN:
        return
    everything = None if snapshot["waiting"] is not None else Part.EMERGENCIES
    part, machine.loading.after_id = snapshot.get("loading", [everything, 0])
    machine.loading.part = None if part is None else Part(part)
    for entity_type, entity_id, after_id in snapshot.get("to_load", []):
        machine.loading.entities[EntityKey(entity_type, entity_id)] = after_id


def _load_changes(machine: Machine, snapshot: Snapshot) -> None:
    coalescer, in_flight = machine.coalescer, machine.in_flight
    for entity_type, entity_id, dead, *rest in snapshot["holds"]:
        entity = EntityKey(entity_type, entity_id)
        if snapshot["version"] >= VERSION_HELD_IN_DATABASE:
            coalescer.holds[entity] = Hold(list(dead), left=rest[0], newest=rest[1])
        else:
            coalescer.holds[entity] = _kept_hold(machine, list(dead), list(_entries(rest[0])))
    coalescer.turns.robin.txn_run = snapshot["txn_run"]
    if snapshot["waiting"] is not None:
        coalescer.restore(_entries(json.loads(snapshot["waiting"])))
    for entry in _entries(snapshot["kept"]):
        in_flight.enter(entry)
    in_flight.bound = list(snapshot["bound"])
    in_flight.in_doubt = list(snapshot["unsettled"])


def _kept_hold(machine: Machine, dead: list[int], held: list[PendingOperation]) -> Hold:
    """A hold of a run that kept held changes in memory. Now they wait in MariaDB, unless this run has release 1 too."""
    machine.dead_letters += len(dead)
    if machine.release == RELEASE_MIN:
        return Hold(dead, held)
    machine.counters.received -= len(held)
    return Hold(dead, left=len(held), newest=max((entry.ref.change_id for entry in held), default=0))


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
    uuids = _uuid_texts(a2b_base64(columns[9])) if len(columns) > 9 else iter(())
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
