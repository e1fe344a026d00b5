"""The coalescer: waiting changes become operations. Debounce per key, lanes, order per entity, holds after a rejection.

Debounce restarts with each newer change of the key and never lasts beyond `max_wait` from the first (traps 6, 7). A key
in its lane still coalesces until it is taken. Order inheritance: when it is an entity's turn, its oldest waiting change
is taken, whichever lane gave the turn (invariant I4, trap 11). Its operations in flight are sent before, by the order
of the sends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import islice

from oldhost_sync.policy.changes import ChangeRef, CoalescingKey, EntityKey, PriorityClass
from oldhost_sync.policy.queue.lanes import DebouncedKeys, Lane, Turns, WeightedRoundRobin
from oldhost_sync.policy.queue.operations import Ages, LaneItem, PendingOperation
from oldhost_sync.policy.tuning import MOVED_AT_ONCE_MAX, SEND_OPERATIONS_MAX, USUAL_PROMISES

_LWW, _TXN, _EMERGENCY = PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY

# Decided dead letters that are remembered: far more than are decided while a send is in flight.
DECIDED_MAX = 1_000


@dataclass(slots=True)
class Hold:
    """An entity with dead letters: its later TXN changes wait in MariaDB until an operator has decided each of these.

    `left`: how many of them the machine has seen and left there, none newer than `newest`.
    """

    dead: list[int]
    left: int = 0
    newest: int = 0

    def holds(self, change_id: int) -> bool:
        """Whether a TXN change is held; not if it was itself a dead letter, or is older than all of them."""
        return change_id not in self.dead and change_id > self.dead[0]

    def has_dead(self, change_id: int) -> bool:
        at = bisect_left(self.dead, change_id)
        return at < len(self.dead) and self.dead[at] == change_id

    def older_than(self, change_id: int) -> list[int]:
        """The dead letters that could hold this change."""
        return self.dead[: bisect_left(self.dead, change_id)]

    def leave(self, *change_ids: int) -> None:
        """These changes, oldest first, also stay in MariaDB; those already counted are not counted again."""
        self.left += len(change_ids) - bisect_right(change_ids, self.newest)
        self.newest = max(self.newest, change_ids[-1])


class Added(Enum):
    """The result of adding a change."""

    NEW = auto()
    REPLACED_OLDER = auto()
    SUPERSEDED = auto()
    HELD = auto()


class Coalescer:
    """All that waits. Times are ms; nothing here reads a clock. `released`: entities whose oldest dead letter was
    decided: the changes held behind it must be read from MariaDB. `parked`: entities that get no turn until then.
    """

    def __init__(
        self,
        *,
        debounce_ms: int,
        max_wait_ms: int,
        txn_per_lww: int,
        txn_run: int = 0,
        early_send_ms: int = 0,
        oldest_first_ms: int = USUAL_PROMISES.oldest_first_ms,
    ) -> None:
        self.released: dict[EntityKey, None] = {}
        self.decided = DecidedLetters()
        self.parked: dict[EntityKey, int] = {}
        self._debounce_ms = debounce_ms
        self._max_wait_ms = max_wait_ms
        self.waiting: dict[int, PendingOperation] = {}
        self.holds: dict[EntityKey, Hold] = {}
        self._by_key: dict[CoalescingKey, int] = {}
        self._by_entity: dict[EntityKey, list[int]] = {}
        self._debounced = DebouncedKeys(early_send_ms)
        self._flushed: dict[int, int] = {}  # debounced changes whose debounce was ended early, and when
        self.ages = {cls: Ages() for cls in PriorityClass}
        self.lanes = {cls: Lane(by_property=cls is not _EMERGENCY) for cls in (_EMERGENCY, _TXN, _LWW)}
        self.turns = Turns(self.lanes, WeightedRoundRobin(txn_per_lww, txn_run), self.waiting, oldest_first_ms)

    # ------------------------------------------------------------------------------------------------------- coming in

    def newest_waiting(self, key: CoalescingKey) -> int | None:
        """The change id that waits for an LWW key, if any."""
        return self._by_key.get(key)

    def add(self, ref: ChangeRef, now_ms: int) -> Added:
        if ref.priority_class is not _LWW:
            placed = self._place(PendingOperation(ref, ref.accepted_at_ms, ref.accepted_at_ms, ready=True))
            return Added.NEW if placed else Added.HELD
        current = self.waiting.get(self._by_key.get(ref.key, 0))
        if current is not None and ref.change_id < current.ref.change_id:
            return Added.SUPERSEDED
        restarted_at_ms = min(ref.accepted_at_ms, now_ms) + self._debounce_ms
        if current is None:
            self._place(PendingOperation(ref, min(ref.accepted_at_ms, now_ms), restarted_at_ms))
            return Added.NEW
        self._take_out(current)
        latest_at_ms = current.first_at_ms + self._max_wait_ms
        due_at_ms = current.due_at_ms if current.ready else min(restarted_at_ms, latest_at_ms)
        self._place(PendingOperation(ref, current.first_at_ms, due_at_ms, current.ready))
        self.unhold(ref.entity, current.ref.change_id)
        return Added.REPLACED_OLDER

    def inherit(self, older: ChangeRef) -> None:
        """An older change of a waiting key is read: the key has been waiting since then, which bounds the debounce."""
        heir = self.waiting.get(self._by_key.get(older.key, 0))
        if heir is None or heir.first_at_ms <= older.accepted_at_ms:
            return
        self._take_out(heir)
        heir.first_at_ms = older.accepted_at_ms
        heir.due_at_ms = min(heir.due_at_ms, heir.first_at_ms + self._max_wait_ms)
        self._place(heir)

    def requeue(self, entry: PendingOperation) -> Added:
        """An operation was taken but not sent. The newest of its key that waits gets the old place again."""
        other = self.waiting.get(self._by_key.get(entry.ref.key, 0)) if entry.ref.priority_class is _LWW else None
        if other is None:
            return Added.NEW if self._place(entry) else Added.HELD
        self._take_out(other)
        older, heir = sorted((entry, other), key=lambda operation: operation.ref.change_id)
        heir.take_place_of(older, self._max_wait_ms)
        self._place(heir)
        self.unhold(older.ref.entity, older.ref.change_id)
        return Added.SUPERSEDED if heir is other else Added.REPLACED_OLDER

    def advance(self, now_ms: int, at_most: int) -> list[EntityKey]:
        """Time has passed: keys fall due, and entities whose pause is over get turns again. Returns the entities of
        which more must be read from MariaDB, as they are no longer held.
        """
        for entity in [entity for entity, until_ms in self.parked.items() if until_ms <= now_ms]:
            self.unpark(entity)
        self.fall_due(now_ms, at_most)
        released, self.released = [*self.released], {}
        return released

    def fall_due(self, now_ms: int, at_most: int = MOVED_AT_ONCE_MAX) -> None:
        """Move keys whose debounce is over into their lane: the flushed ones, then the longest overdue. Of each at most
        `at_most` now, and the rest at the next call.
        """
        for change_id in list(islice(self._flushed, at_most)):
            self._debounced.remove(change_id)
            self._make_ready(self.waiting[change_id])
        for _ in range(at_most):
            if (due := self._debounced.pop_due(now_ms)) is None:
                return
            self._make_ready(self.waiting[due])

    def end_quiet(self, now_ms: int, at_most: int) -> None:
        """Move keys that were quiet for long enough into their lane before they are due, the quietest first."""
        self._flushed.update(dict.fromkeys(self._debounced.quiet(now_ms, at_most), now_ms))
        self.fall_due(now_ms, at_most)

    def next_quiet_at_ms(self) -> int | None:
        return self._debounced.next_quiet_at_ms()

    def flush(self, entity: EntityKey | None, now_ms: int) -> int:
        """End the debounce of one entity's keys, or of all (None), now; returns how many. `fall_due` moves them."""
        ids = self._debounced.change_ids() if entity is None else self._by_entity.get(entity, ())
        ended = [change_id for change_id in ids if not self.waiting[change_id].ready and change_id not in self._flushed]
        self._flushed.update(dict.fromkeys(ended, now_ms))
        return len(ended)

    # ------------------------------------------------------------------------------------------------------- going out

    def take(self, now_ms: int = 0, service_ms: float = 0.0) -> list[PendingOperation]:
        """Take what is sent next: one operation, or for an EMERGENCY a chain: older ones of its entity, then itself.
        `service_ms`: OldHost's time for one operation.

        A chain is no longer than a send; the rest follows in the next. Empty when nothing can be sent.
        """
        if not self.can_send:
            self.turns.robin.txn_run = 0
            return []
        turn = self.turns.next(now_ms, service_ms)
        if turn is None:
            return []
        cls, (entity, change_id) = turn
        last = change_id if cls is _EMERGENCY else self._by_entity[entity][0]
        ids = self._by_entity[entity]
        chain = [self.waiting[change_id] for change_id in ids[: min(bisect_right(ids, last), SEND_OPERATIONS_MAX)]]
        if cls is _TXN and chain[0].ref.priority_class is _LWW:
            self.turns.robin.charge_lww()
        for entry in chain:
            self._take_out(entry)
        return chain

    def take_change(self, change_id: int) -> PendingOperation | None:
        """Take one change out of wherever it waits (it turned out to be bound to a nonce, or was discarded)."""
        entry = self.waiting.get(change_id)
        if entry is not None:
            self._take_out(entry)
        return entry

    def park(self, change_id: int, until_ms: int) -> EntityKey | None:
        """Its entity gets no turn until then. None: the change does not wait here any more."""
        entry = self.waiting.get(change_id)
        if entry is None:
            return None
        self.parked[entry.ref.entity] = until_ms
        for lane in self.lanes.values():
            lane.park(entry.ref.entity)
        return entry.ref.entity

    def unpark(self, entity: EntityKey) -> None:
        if self.parked.pop(entity, None) is not None:
            for lane in self.lanes.values():
                lane.unpark(entity)

    # ----------------------------------------------------------------------------------------------------------- holds

    def hold(self, entity: EntityKey, dead_change_id: int) -> int:
        """Hold the entity's TXN changes after this rejected one. Returns how many left memory; they stay in MariaDB."""
        hold = self.holds.setdefault(entity, Hold([]))
        self.decided.forget(dead_change_id)
        if dead_change_id not in hold.dead:
            insort(hold.dead, dead_change_id)
        return self._leave_all(entity, hold)

    def _leave_all(self, entity: EntityKey, hold: Hold) -> int:
        """Drop all held changes from memory at once: one by one, tens of thousands would take seconds."""
        held: list[LaneItem] = []
        rest: list[LaneItem] = []
        for item in self.lanes[_TXN].of(entity):
            (held if self._is_held(hold, self.waiting[item[1]].ref) else rest).append(item)
        if not held:
            return 0
        hold.leave(*(change_id for _, change_id, _ in held))
        for _, change_id, _ in held:
            self.ages[_TXN].remove(self.waiting.pop(change_id))
        if ids := [change_id for change_id in self._by_entity[entity] if change_id in self.waiting]:
            self._by_entity[entity] = ids
        else:
            del self._by_entity[entity]
        self.lanes[_TXN].replace(entity, rest)
        return len(held)

    def _is_held(self, hold: Hold, ref: ChangeRef) -> bool:
        return ref.priority_class is _TXN and hold.holds(ref.change_id)

    def waits_again(self, entity: EntityKey, change_id: int) -> None:
        """A dead letter that was retried turns out to be held behind an older one: it waits with the others."""
        hold = self.holds.get(entity)
        if hold is not None and change_id in hold.dead[1:]:
            hold.dead.remove(change_id)

    def unhold(self, entity: EntityKey, dead_change_id: int) -> None:
        """One dead letter is decided. After the last one, the held changes wait in their lane again."""
        hold = self.holds.get(entity)
        if hold is None or dead_change_id not in hold.dead:
            return
        self.decided.note(dead_change_id)
        was_first = hold.dead[0] == dead_change_id
        hold.dead.remove(dead_change_id)
        if was_first:
            self.released[entity] = None
        if not hold.dead:
            del self.holds[entity]

    # -------------------------------------------------------------------------------------------------------- counting

    @property
    def held_count(self) -> int:
        return sum(hold.left for hold in self.holds.values())

    @property
    def debounced_count(self) -> int:
        return len(self._debounced)

    @property
    def can_send(self) -> bool:
        lanes = self.lanes
        return bool(lanes[_EMERGENCY].heads or lanes[_TXN].heads or lanes[_LWW].heads)

    def next_due_at_ms(self) -> int | None:
        return min(self._flushed.values()) if self._flushed else self._debounced.next_due_at_ms()

    def entries(self) -> list[PendingOperation]:
        """All that waits, oldest first; flushed changes as if they were already in their lane."""
        entries = [self.waiting[change_id] for change_id in sorted(self.waiting)]
        return [self._as_flushed(entry) for entry in entries] if self._flushed else entries

    def _as_flushed(self, entry: PendingOperation) -> PendingOperation:
        at_ms = self._flushed.get(entry.ref.change_id)
        return entry if at_ms is None else replace(entry, due_at_ms=min(entry.due_at_ms, at_ms), ready=True)

    def count_of(self, entity: EntityKey) -> int:
        return len(self._by_entity.get(entity, ()))

    def ids_of(self, entity: EntityKey) -> list[int]:
        """The entity's waiting changes that are not held, oldest first."""
        return self._by_entity.get(entity, [])

    def entries_of(self, entity: EntityKey, at_most: int) -> list[PendingOperation]:
        """The oldest waiting changes of this entity."""
        return [self.waiting[change_id] for change_id in self._by_entity.get(entity, ())[:at_most]]

    def restore(self, entries: Iterable[PendingOperation]) -> None:
        """Load entries as they are, oldest first, into an empty coalescer: several times quicker than one by one."""
        ready: dict[PriorityClass, list[tuple[LaneItem, EntityKey]]] = {cls: [] for cls in self.lanes}
        instants: dict[PriorityClass, list[tuple[int, int]]] = {cls: [] for cls in self.lanes}
        properties: dict[PriorityClass, list[str]] = {cls: [] for cls in self.lanes}
        debounced: dict[int, int] = {}
        for entry in entries:
            ref = entry.ref
            change_id, cls, entity = ref.change_id, ref.priority_class, ref.entity
            self.waiting[change_id] = entry
            if (ids := self._by_entity.get(entity)) is None:
                self._by_entity[entity] = [change_id]
            else:
                ids.append(change_id)
            if cls is _LWW:
                self._by_key[ref.key] = change_id
            instants[cls].append((entry.ready_ms, entry.first_at_ms))
            properties[cls].append(ref.property_id)
            if entry.ready:
                ready[cls].append((entry.lane_item, entity))
            else:
                debounced[change_id] = entry.due_at_ms
        self._debounced.fill(debounced, lambda change_id: self.waiting[change_id].ref.accepted_at_ms)
        for cls, lane in self.lanes.items():
            lane.fill(ready[cls])
        for cls, ages in self.ages.items():
            ages.fill(instants[cls], properties[cls])

    # ------------------------------------------------------------------------------------------------------- placement

    def _place(self, entry: PendingOperation) -> bool:
        """Put it where it has to wait. False: it is held, and stays in MariaDB only."""
        ref = entry.ref
        hold = self.holds.get(ref.entity)
        if hold is not None and self._is_held(hold, ref):
            hold.leave(ref.change_id)
            return False
        self.waiting[ref.change_id] = entry
        self.ages[entry.ref.priority_class].add(entry)
        insort(self._by_entity.setdefault(ref.entity, []), ref.change_id)
        if ref.priority_class is _LWW:
            self._by_key[ref.key] = ref.change_id
        if entry.ready:
            self.lanes[ref.priority_class].add(ref.entity, entry.lane_item)
        else:
            self._debounced.put(ref.change_id, entry.due_at_ms, ref.accepted_at_ms)
        return True

    def _make_ready(self, entry: PendingOperation) -> None:
        if entry.ref.change_id in self._flushed:
            self.ages[entry.ref.priority_class].remove(entry)
            self._end_debounce(entry)
            self.ages[entry.ref.priority_class].add(entry)
        entry.ready = True
        self.lanes[entry.ref.priority_class].add(entry.ref.entity, entry.lane_item)

    def _take_out(self, entry: PendingOperation) -> None:
        ref = entry.ref
        del self.waiting[ref.change_id]
        self.ages[entry.ref.priority_class].remove(entry)
        ids = self._by_entity[ref.entity]
        del ids[bisect_left(ids, ref.change_id)]
        if not ids:
            del self._by_entity[ref.entity]
        if self._by_key.get(ref.key) == ref.change_id:
            del self._by_key[ref.key]
        if entry.ready:
            self.lanes[ref.priority_class].remove(ref.entity, entry.lane_item)
        else:
            self._debounced.remove(ref.change_id)
            self._end_debounce(entry)

    def _end_debounce(self, entry: PendingOperation) -> None:
        """Apply the early end of its debounce, if it was flushed."""
        flushed_at_ms = self._flushed.pop(entry.ref.change_id, None)
        if flushed_at_ms is not None:
            entry.due_at_ms = min(entry.due_at_ms, flushed_at_ms)
            entry.ready = True


class DecidedLetters:
    """The dead letters that were decided lately, by change id: a send that began before may still report one as holding
    its entity. One that is retried and rejected again is forgotten.
    """

    def __init__(self) -> None:
        self._ids: dict[int, None] = {}

    def __contains__(self, change_id: int) -> bool:
        return change_id in self._ids

    def note(self, change_id: int) -> None:
        self._ids[change_id] = None
        if len(self._ids) > DECIDED_MAX:
            del self._ids[next(iter(self._ids))]

    def forget(self, change_id: int) -> None:
        self._ids.pop(change_id, None)


def upcoming(coalescer: Coalescer, count: int, now_ms: int = 0, service_ms: float = 0.0) -> list[ChangeRef]:
    """The next operations if nothing new arrives, for display: the coalescer's own code, run on copies of the changes
    that may be among them. `count` at most. `service_ms`: how long OldHost takes for one.
    """
    rehearsal = Coalescer(
        debounce_ms=0,
        max_wait_ms=0,
        txn_per_lww=coalescer.turns.robin.txn_per_lww,
        txn_run=coalescer.turns.robin.txn_run,
        oldest_first_ms=coalescer.turns.oldest_first_ms,
    )
    for cls, lane in rehearsal.lanes.items():
        lane.follow(coalescer.lanes[cls])
    rehearsal.restore(replace(coalescer.waiting[change_id]) for change_id in sorted(near(coalescer, count)))
    rehearsal.turns.elsewhere = coalescer.turns.waiting - rehearsal.turns.waiting
    order: list[ChangeRef] = []
    while len(order) < count and (chain := rehearsal.take(now_ms, service_ms)):
        order += [entry.ref for entry in chain]
    return order[:count]


def near(coalescer: Coalescer, count: int) -> set[int]:
    """The changes that may be among the next `count`: the first of each lane, each with the older ones of its entity,
    which are sent before it. Once a lane has `count` of these, the rest of it does not matter. Where properties take
    turns, a turn for the oldest change may take one that rotation would have reached, and rotation then reaches one
    further back: twice as many matter.
    """
    near: set[int] = set()
    for lane in coalescer.lanes.values():
        of_lane: set[int] = set()
        for (_, change_id, _), entity in lane.first(count):
            ids = coalescer.ids_of(entity)
            here = bisect_left(ids, change_id)
            of_lane.update(ids[: min(here, count)], [change_id])
            if len(of_lane) >= count:
                break
        near |= of_lane
        for (_, change_id, _), entity in lane.first_in_rotation(2 * count):
            ids = coalescer.ids_of(entity)
            near.update(ids[: min(bisect_left(ids, change_id), count)], [change_id])
    return near
