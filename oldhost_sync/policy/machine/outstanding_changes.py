"""Outstanding changes, as the machine reads them from MariaDB page by page, while it sends what it already has.

Rebuild: after a start without state, emergencies first, each with the older changes of its entity, then everything
else. The first page also has a pause or ban that applies, so nothing is sent before it. It is safe to read the rest
later: the reservation refuses a change with an older outstanding one of its entity, and names that one. Also read: the
changes of one entity, after a dead letter was decided. Held changes wait in MariaDB only, so they cost no memory.

Sweep: a periodic search for missed changes, marked as relayed in MariaDB but missing in the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from oldhost_sync.policy.changes import ChangeRef, CoalescingKey, EntityKey, PriorityClass
from oldhost_sync.policy.tuning import FIRST_SWEEP_MS, RELOAD_MS_MAX, RELOAD_MS_MIN


class RecentFates:
    """Changes that ended between `begin` and `end`, while a page was read, and that it still shows as outstanding."""

    def __init__(self) -> None:
        self._reading = False
        self._ended: dict[int, None] = {}
        self._newest: dict[CoalescingKey, int] = {}

    def begin(self) -> None:
        self._reading = True
        self._ended.clear()
        self._newest.clear()

    def end(self) -> None:
        self._reading = False

    def saw(self, ref: ChangeRef, *, replaces: bool) -> None:
        """A change has its fate. With an LWW change, all older ones of its key have theirs, if it `replaces` them: not
        if it was withdrawn.
        """
        if not self._reading:
            return
        self._ended[ref.change_id] = None
        if replaces and ref.priority_class is PriorityClass.LWW:
            self._newest[ref.key] = max(ref.change_id, self._newest.get(ref.key, 0))

    def __contains__(self, change_id: int) -> bool:
        return change_id in self._ended

    def outstanding(self, refs: Iterable[ChangeRef]) -> list[ChangeRef]:
        """Those of a page that still have no fate."""
        return [
            ref
            for ref in refs
            if ref.change_id not in self._ended
            and not (ref.priority_class is PriorityClass.LWW and ref.change_id < self._newest.get(ref.key, 0))
        ]


class Part(StrEnum):
    """What the changes of a page belong to."""

    EMERGENCIES = "emergencies"
    REST = "rest"
    ENTITY = "entity"


@dataclass
class Rebuild:
    """`part`: after a start, what is read next (None: all is read), from after change `after_id`. `entities`: those
    whose changes must be read, each with the id to read after. One page is read at a time (`under_way`), the next not
    before `at_ms`.
    """

    part: Part | None = None
    after_id: int = 0
    entities: dict[EntityKey, int] = field(default_factory=dict)
    under_way: bool = False
    at_ms: int = 0
    failures: int = 0
    fates: RecentFates = field(default_factory=RecentFates)
    reading: dict[EntityKey, int] = field(default_factory=dict)

    @property
    def is_due(self) -> bool:
        return not self.under_way and (self.part is not None or bool(self.entities))

    def begin(self) -> tuple[Part, int, EntityKey | None]:
        """Begin the next page. Returns its part, the change id to read after, and the entity, if it is for one."""
        self.under_way = True
        self.fates.begin()
        if self.part is not None:
            return self.part, self.after_id, None
        entity = next(iter(self.entities))
        after_id = self.entities.pop(entity)
        self.reading = {entity: after_id}
        return Part.ENTITY, after_id, entity

    def to_be_read(self) -> dict[EntityKey, int]:
        """The entities that a new run has to read, including the one being read, which is abandoned."""
        return {**self.reading, **self.entities}

    def end(self, entity: EntityKey | None, last_id: int, *, more: bool) -> None:
        """The page is taken over."""
        self.under_way = False
        self.reading = {}
        self.failures = 0
        self.fates.end()
        if entity is not None:
            if more:
                self.entities.setdefault(entity, last_id)
        elif more:
            self.after_id = last_id
        else:
            self.part = Part.REST if self.part is Part.EMERGENCIES else None
            self.after_id = 0

    def fail(self, entity: EntityKey | None, after_id: int, now_ms: int) -> None:
        """The database did not answer: read the same page again, with growing pauses."""
        self.under_way = False
        self.reading = {}
        self.fates.end()
        if entity is not None:
            self.entities.setdefault(entity, after_id)
        self.at_ms = now_ms + min(RELOAD_MS_MIN * 2 ** min(self.failures, 10), RELOAD_MS_MAX)
        self.failures += 1

    def want(self, entity: EntityKey) -> None:
        """Read all of this entity's changes. If that is under way, begin again: more may no longer be held."""
        self.entities[entity] = 0


@dataclass
class SweepState:
    """`at_ms`: when the next page is due, from after change `after_id` (0: a new sweep). `under_way`: being read."""

    every_ms: int
    at_ms: int = 0
    after_id: int = 0
    under_way: bool = False
    fates: RecentFates = field(default_factory=RecentFates)

    def begin(self) -> int:
        """A page is requested. Returns the change id to read after."""
        self.under_way = True
        self.fates.begin()
        return self.after_id

    def end(self, last_id: int, now_ms: int, *, more: bool) -> None:
        """The page is taken over. The next one follows soon if there is more, otherwise at the next regular sweep."""
        self.after_id = last_id if more else 0
        self._rest(now_ms, soon=more)

    def fail(self, now_ms: int) -> None:
        """The database did not answer: read the same page again soon."""
        self._rest(now_ms, soon=True)

    def begin_soon(self, now_ms: int) -> None:
        """After a rebuild, the first sweep is soon."""
        self._rest(now_ms, soon=True)

    def _rest(self, now_ms: int, *, soon: bool) -> None:
        self.under_way = False
        self.fates.end()
        self.at_ms = now_ms + (min(FIRST_SWEEP_MS, self.every_ms) if soon else self.every_ms)
