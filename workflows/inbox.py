"""The inbox: changes that came by signal, in their order, until an activity has recorded them in the outbox.

They are the one thing with payloads that the writer holds (invariant I9): they are recorded at once. What has not been
when a new run begins is carried there while it is small; else it stays behind in this run's history, and the next run
finds it there. One whose entity's row somebody holds is put back: it and what follows of its entity wait, all others go
on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from workflows.messages import Submission

PER_ACTIVITY_MAX = 50
# An activity's input copies the payloads into history: with batches of this size a copy is recorded within
# milliseconds, and what is left when a run ends is small.
BATCH_BYTES_MAX = 128 * 1024
# Temporal refuses inputs above 2 MiB, of an activity and of a new run, and stops at them for ever; half is the
# snapshot's.
BYTES_MAX = 512 * 1024
# Who holds an entity's row is mostly gone within a second; each attempt copies the payload into history again.
RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 60_000


@dataclass
class Item:
    """`entity` None: it names none, and follows nothing."""

    submission: Submission
    size: int
    entity: tuple[str, str] | None


@dataclass
class Block:
    """An entity that could not be recorded; `since` the last attempt the pause doubled."""

    until_ms: int
    pause_ms: int


class Inbox:
    """`recording`: an activity is at it; the next batch waits for its end, so that the order holds.

    `held`: nothing is recorded yet, because older signals are still read from an earlier run's history. `release`: runs
    begun before 0.2 take larger batches, and record before a new run what they can't carry.
    """

    def __init__(self, carried: Iterable[Submission], *, release: int = 2) -> None:
        self._waiting: list[Item] = []
        self._under_way: list[Item] = []
        self._blocked: dict[tuple[str, str], Block] = {}
        self._bytes = 0
        self._bytes_per_batch = BATCH_BYTES_MAX if release > 1 else BYTES_MAX
        self._release = release
        self.held = False
        for submission in carried:
            self.add(submission)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    @property
    def recording(self) -> bool:
        return bool(self._under_way)

    def add(self, submission: Submission) -> None:
        item = Item(submission, len(json.dumps(submission.change)), _entity_of(submission.change))
        self._waiting.append(item)
        self._bytes += item.size

    def next_batch(self, *, draining: bool, now_ms: int = 0) -> list[Submission]:
        """What to record now: nothing before a new run."""
        if self.recording or self.held or not self._waiting or (draining and self._may_end):
            return []
        self._under_way = self._take(now_ms)
        return [item.submission for item in self._under_way]

    def recorded(self, left: Iterable[int], now_ms: int) -> None:
        """The batch has ended; `left`: which of it, by their places, were not recorded."""
        back = [self._under_way[place] for place in left]
        self._unblock({item.entity for item in self._under_way if item.entity} - {item.entity for item in back})
        for item in back:
            self._block(item, now_ms)
        self._bytes -= sum(item.size for item in self._under_way)
        self._bytes += sum(item.size for item in back)
        self._under_way, self._waiting = [], back + self._waiting

    def failed(self) -> None:
        """The batch came to no end: all of it waits again."""
        self._under_way, self._waiting = [], self._under_way + self._waiting

    def retry_at_ms(self) -> int | None:
        """When something that was left may be tried again; None: nothing waits for that."""
        return min((block.until_ms for block in self._blocked.values()), default=None) if self._waiting else None

    def carried(self) -> list[Submission] | None:
        """What the next run is given; None where it is too much, and stays behind in this run's history."""
        if self._release > 1 and self._bytes > BYTES_MAX:
            return None
        return [item.submission for item in [*self._under_way, *self._waiting]]

    @property
    def _may_end(self) -> bool:
        return self._release > 1 or self._bytes <= BYTES_MAX

    def _take(self, now_ms: int) -> list[Item]:
        """The next items in order, but for those of a blocked entity."""
        taken: list[Item] = []
        rest: list[Item] = []
        left = self._bytes_per_batch
        for place, item in enumerate(self._waiting):
            if self._is_blocked(item, now_ms):
                rest.append(item)
                continue
            if len(taken) == PER_ACTIVITY_MAX or (taken and left < item.size):
                rest += self._waiting[place:]
                break
            left -= item.size
            taken.append(item)
        self._waiting = rest
        return taken

    def _is_blocked(self, item: Item, now_ms: int) -> bool:
        block = self._blocked.get(item.entity) if item.entity else None
        return block is not None and block.until_ms > now_ms

    def _block(self, item: Item, now_ms: int) -> None:
        if item.entity is None:
            return
        block = self._blocked.get(item.entity)
        if block is not None and block.until_ms > now_ms:
            return
        pause_ms = min(2 * block.pause_ms, RETRY_MS_MAX) if block else RETRY_MS_MIN
        self._blocked[item.entity] = Block(now_ms + pause_ms, pause_ms)

    def _unblock(self, entities: Iterable[tuple[str, str]]) -> None:
        for entity in sorted(entities):
            self._blocked.pop(entity, None)


def _entity_of(change: object) -> tuple[str, str] | None:
    if not isinstance(change, dict):
        return None
    names = (change.get("entity_type"), change.get("entity_id"))
    return names if all(isinstance(name, str) for name in names) else None  # type: ignore[return-value]
