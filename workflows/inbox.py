"""The inbox: changes that arrived by signal, in order, until an activity has recorded them in the outbox.

Nothing else in the writer's memory has payloads (invariant I9), so they are recorded at once. Those not yet recorded
when a new run begins are passed to it if they are small; otherwise the next run reads them from this run's history. A
change whose entity's row is locked is put back: it and the later changes of its entity wait, all others are recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from workflows.messages import Submission

PER_ACTIVITY_MAX = 50
# An activity's input copies the payloads into history: a batch of this size is recorded within milliseconds, and little
# is left when a run ends.
BATCH_BYTES_MAX = 128 * 1024
# Temporal refuses an input above 2 MiB, of an activity or of a new run, and the workflow is stuck for ever; half of it
# is for the snapshot.
BYTES_MAX = 512 * 1024
# A row lock is usually released within a second; each attempt copies the payload into history again.
RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 60_000


@dataclass
class Item:
    """`entity` None: the change names none, so it waits for no other change."""

    submission: Submission
    size: int
    entity: tuple[str, str] | None


@dataclass
class Block:
    """An entity whose changes could not be recorded: not tried again before `until_ms`; the next pause is doubled."""

    until_ms: int
    pause_ms: int


class Inbox:
    """`recording`: an activity is recording a batch; the next batch waits for it, to keep the order.

    `awaits_older`: nothing is recorded yet, because older signals are still read from an earlier run's history.
    """

    def __init__(self, carried: Iterable[Submission]) -> None:
        self._waiting: list[Item] = []
        self._under_way: list[Item] = []
        self._blocked: dict[tuple[str, str], Block] = {}
        self._bytes = 0
        self.awaits_older = False
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
        """The changes to record now; none while the run is ending."""
        if self.recording or self.awaits_older or not self._waiting or draining:
            return []
        self._under_way = self._take(now_ms)
        return [item.submission for item in self._under_way]

    def recorded(self, left: Iterable[int], now_ms: int) -> None:
        """The batch has ended; `left`: the positions in it of changes that were not recorded."""
        back = [self._under_way[place] for place in left]
        self._unblock({item.entity for item in self._under_way if item.entity} - {item.entity for item in back})
        for item in back:
            self._block(item, now_ms)
        self._bytes -= sum(item.size for item in self._under_way)
        self._bytes += sum(item.size for item in back)
        self._under_way, self._waiting = [], back + self._waiting

    def failed(self) -> None:
        """The activity failed: the whole batch waits again."""
        self._under_way, self._waiting = [], self._under_way + self._waiting

    def retry_at_ms(self) -> int | None:
        """When to try blocked changes again; None: there are none."""
        return min((block.until_ms for block in self._blocked.values()), default=None) if self._waiting else None

    def carried(self) -> list[Submission] | None:
        """The changes to pass to the next run; None when they are too large and stay in this run's history."""
        if self._bytes > BYTES_MAX:
            return None
        return [item.submission for item in [*self._under_way, *self._waiting]]

    def _take(self, now_ms: int) -> list[Item]:
        """The next items in order, without those of a blocked entity."""
        taken: list[Item] = []
        rest: list[Item] = []
        left = BATCH_BYTES_MAX
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
