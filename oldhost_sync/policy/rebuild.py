"""Loading: what the writer reads from MariaDB page by page, while it sends what it has.

After a start with nothing: emergencies first, each with the older changes of its entity, then everything else. The
first page also says what stands (a pause, a ban), so nothing is sent before it. That the rest comes later is safe: the
reservation refuses a change with an older outstanding one of its entity, and says which. And one entity's changes, when
a dead letter was decided on: what is held behind it waits in MariaDB only, so that it costs nothing however much it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.recent_fates import RecentFates
from oldhost_sync.policy.writer_policy import RELOAD_MS_MAX, RELOAD_MS_MIN


class Part(StrEnum):
    """What a page is part of."""

    EMERGENCIES = "emergencies"
    REST = "rest"
    ENTITY = "entity"


@dataclass
class Loading:
    """`part`: of a start, what is read next (None: all is read), after change `after_id`. `entities`: whose changes are
    to be read, each after which change. One page is read at a time (`under_way`); the next one not before `at_ms`.
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
        """The next page: of what, after which change, of which entity."""
        self.under_way = True
        self.fates.begin()
        if self.part is not None:
            return self.part, self.after_id, None
        entity = next(iter(self.entities))
        after_id = self.entities.pop(entity)
        self.reading = {entity: after_id}
        return Part.ENTITY, after_id, entity

    def to_be_read(self) -> dict[EntityKey, int]:
        """What a new run has to read, with what is under way and given up."""
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
        """The database did not answer: the same page again, ever more slowly."""
        self.under_way = False
        self.reading = {}
        self.fates.end()
        if entity is not None:
            self.entities.setdefault(entity, after_id)
        self.at_ms = now_ms + min(RELOAD_MS_MIN * 2 ** min(self.failures, 10), RELOAD_MS_MAX)
        self.failures += 1

    def want(self, entity: EntityKey) -> None:
        """Read all of this entity's changes, from the beginning if that is under way: some may be free by now."""
        self.entities[entity] = 0
