"""What OldHost ends with, field by field and over all event types: the oracle by entity.

OldHost keeps one record of an entity, whatever event wrote it: a later operation with `{"status": "Dirty"}` replaces
the status that an earlier one of another event type left. So what counts is not each key's last operation but, for each
field, the newest accepted change that says it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

Entity = tuple[str, str]
GIVEN_UP = {"DEAD", "DISCARDED", "REFUSED"}


def folded(bodies: Iterable[Mapping[str, Any]]) -> dict[Entity, dict[str, Any]]:
    """OldHost's journal as records: each operation's payload over what was there."""
    records: dict[Entity, dict[str, Any]] = {}
    for body in bodies:
        entity = (str(body["entity_type"]), str(body["entity_id"]))
        records.setdefault(entity, {}).update(body["payload"])
    return records


def differences(world: Any, rows: Iterable[Any], adopted: Collection[int] = ()) -> list[str]:
    """`rows` of the outbox by id: (id, key, entity_type, entity_id, event_type, payload, class, outcome, nonce).

    Left out: a field whose newest change OldHost does not have by somebody's decision or by its own (rejected,
    discarded, its rejection lost, `adopted`), and entities whose order an operator or a rejection has changed.
    """
    always = world.always
    newest: dict[Entity, dict[str, tuple[int, Any] | None]] = {}
    reordered = {*always.first_dead}
    for change_id, _, entity_type, entity_id, _, payload, _, outcome, _ in rows:
        entity = (entity_type, entity_id)
        if change_id in world.retried:
            reordered.add(entity)
        given_up = outcome in GIVEN_UP or change_id in {**always.mistaken, **always.misjudged} or change_id in adopted
        if outcome != "REFUSED":
            for name, value in json.loads(payload).items():
                newest.setdefault(entity, {})[name] = None if given_up else (change_id, value)
    records = folded(entry.body for entry in world.oldhost.host._standing if entry.body and entry.outcome != "rejected")
    return [
        f"I3: {entity} ends with {name} = {said[1]!r} (change {said[0]}), OldHost has "
        f"{records.get(entity, {}).get(name)!r}"
        for entity, fields in sorted(newest.items())
        if entity not in reordered
        for name, said in sorted(fields.items())
        if said is not None and records.get(entity, {}).get(name) != said[1]
    ]
