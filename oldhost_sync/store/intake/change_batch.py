"""A batch of changes, before the database is asked: which items belong to one entity, and which are refused together.

All or nothing for each entity: if one item is refused, no new item of its entity is recorded. An item whose key is in
the database already gets its first answer in any case. Within a batch a key identifies one change: the same change
again gets the answer of the first, and a different change with the same key is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oldhost_sync.store.errors import EntityRefused, IdempotencyConflict, InvalidChange, StoreError
from oldhost_sync.store.intake.change_recorder import RecordedChange
from oldhost_sync.store.intake.validation import Acceptable

Entity = tuple[str, str]
Result = RecordedChange | StoreError
# The first answer to a change whose key is known; an IdempotencyConflict; or None if the key is new.
FirstAnswer = Callable[[Acceptable], Result | None]


@dataclass(frozen=True, slots=True)
class Unacceptable:
    """An item that is refused because of its own fields; `entity` if that could be read."""

    error: InvalidChange
    entity: Entity | None = None


Item = Acceptable | Unacceptable


@dataclass(slots=True)
class Group:
    """The items of one entity with their places in the batch, in order; each key once."""

    entity: Entity
    items: list[tuple[int, Item]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one group: the results already known, and the changes to be recorded, all of them or none."""

    results: dict[int, Result]
    new: list[tuple[int, Acceptable]]


class ChangeBatch:
    """`groups`: what is to be recorded. `results` puts their results into the order of the items."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._count = len(items)
        # Items that are refused and whose entity is unknown.
        self._alone: dict[int, Result] = {}
        # By item that repeats a change: the first item with the same key and change.
        self._repeats: dict[int, int] = {}
        groups: dict[Entity, Group] = {}
        firsts: dict[str, tuple[int, Acceptable]] = {}
        for index, item in enumerate(items):
            if isinstance(item, Acceptable):
                first, change = firsts.setdefault(item.idempotency_key, (index, item))
                if first != index and change.request_hash == item.request_hash:
                    self._repeats[index] = first
                else:
                    entity = (item.entity_type, item.entity_id)
                    kept = item if first == index else Unacceptable(_key_taken(item, first), entity)
                    groups.setdefault(entity, Group(entity)).items.append((index, kept))
            elif item.entity is None:
                self._alone[index] = item.error
            else:
                groups.setdefault(item.entity, Group(item.entity)).items.append((index, item))
        self.groups = list(groups.values())

    def results(self, of_groups: Mapping[int, Result]) -> list[Result]:
        """One result for each item, in their order."""
        found = {**of_groups, **self._alone}
        for index, first in self._repeats.items():
            answer = found[first]
            found[index] = replace(answer, duplicate=True) if isinstance(answer, RecordedChange) else answer
        return [found[index] for index in range(self._count)]


def decide(group: Group, first_answer: FirstAnswer) -> Decision:
    """Decide which changes of the group are recorded now."""
    results: dict[int, Result] = {}
    new: list[tuple[int, Acceptable]] = []
    for index, item in group.items:
        known = item.error if isinstance(item, Unacceptable) else first_answer(item)
        if known is not None:
            results[index] = known
        elif isinstance(item, Acceptable):
            new.append((index, item))
    refused = [index for index, result in results.items() if isinstance(result, StoreError)]
    if refused:
        results |= {index: EntityRefused(refused[0]) for index, _ in new}
        new = []
    return Decision(results, new)


def _key_taken(change: Acceptable, first: int) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"idempotency key {change.idempotency_key} is also that of item {first} of the batch, a different change"
    )
