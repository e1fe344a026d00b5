"""The checker's rules for what the further nemeses bring; like the others they know nothing of the product."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
Entity = tuple[str, str]

EMERGENCY_SECONDS_MAX = 5.0
# From a lock's beginning: nothing else happens so long (tests/faults/schedule.py), less what an emergency may take.
CALM_SECONDS = 7.0
# The writer was at work when the lock began, or something else may be what the emergency waits for.
AT_WORK_SECONDS = 3.0
# Two batches may be bound to their nonces before an emergency comes.
OVERTAKING_MAX = 20


def signals_recorded(evidence: Any) -> Iterator[str]:
    """I13: what Temporal acknowledged is recorded exactly once; what it did not, at most once. By
    the payload, which is its own."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in evidence.changes:
        rows[str(_payload(row).get("note"))].append(row)
    for signal in evidence.signals:
        found = rows[signal["note"]]
        if len(found) > 1 or (signal["acknowledged"] and not found):
            yield f"the signal {signal['note']!r} ({signal['key'] or 'without a key'}) is recorded {len(found)} times"
        elif found and signal["key"] and found[0]["idempotency_key"] != signal["key"]:
            yield f"the signal {signal['note']!r} is recorded under the key {found[0]['idempotency_key']!r}"


def field_states(evidence: Any) -> Iterator[str]:
    """OldHost's journal folded by field, over all event types, is the newest accepted state by field.

    Left out: fields whose newest change OldHost does not have by its own or somebody's decision, and entities whose
    order a rejection or an operator's retry has changed. A rejection whose answer was lost is known as applied: it
    holds nothing, so the order is as ever.
    """
    at_oldhost: dict[Entity, Row] = defaultdict(dict)
    for entry in evidence.applied:
        at_oldhost[_entity(entry["body"])].update(entry["body"]["payload"])
    known = [each["body"] for each in evidence.rejected if each["body"]["event_id"] not in evidence.lost_rejections]
    reordered = {_entity(body) for body in known}
    accepted: dict[Entity, dict[str, tuple[Any, Row]]] = defaultdict(dict)
    for row in evidence.changes:
        if row["id"] in evidence.retried | evidence.unsure:
            reordered.add(_entity(row))
        if row["outcome"] == "SUPERSEDED":
            continue  # a payload is the whole state of its key: what a newer one of the key no longer says is not said
        for name, value in _payload(row).items():
            accepted[_entity(row)][name] = (value, row)
    for entity, fields in accepted.items():
        if entity in reordered:
            continue
        for name, (value, row) in fields.items():
            given_up = row["outcome"] in {"DEAD", "DISCARDED"} or row["id"] in evidence.lost_rejections
            if not given_up and at_oldhost[entity].get(name) != value:
                kept = at_oldhost[entity].get(name)
                yield f"{entity} {name}: change {row['id']} says {value!r}, OldHost has {kept!r}"


def waited_for_rows(evidence: Any) -> Iterator[str]:
    """I10: while another program holds an entity's rows, the emergencies of others are applied within 5 s, or wait in a
    queue.

    A queue moves, and what moves in it came earlier: so there is no gap of 5 s between operations while one waits, and
    hardly any operation that is none of an emergency's and was accepted later. Left out: emergencies that OldHost
    rejected, also if they were applied after an operator's retry.
    """
    applied = {entry["body"]["event_id"]: entry["applied_at"] for entry in evidence.applied if entry.get("applied_at")}
    moments = sorted((at, change_id) for change_id, at in applied.items())
    rejected = {entry["body"]["event_id"] for entry in evidence.rejected}
    urgent = {row["id"] for row in evidence.changes if row["priority_class"] == "EMERGENCY"}
    for lock in evidence.locks:
        began = lock["from_at"]
        if not lock["rows"] or not any(began - AT_WORK_SECONDS < moment < began for moment, _ in moments):
            continue
        for receipt in evidence.receipts:
            concerned = receipt["priority_class"] == "EMERGENCY" and receipt["entity_id"] != lock["entity_id"]
            accepted, change_id = receipt["answered_at"], receipt["change_id"]
            if (
                not concerned
                or change_id not in applied
                or change_id in rejected
                or not began < accepted < began + CALM_SECONDS
            ):
                continue
            until = min(applied[change_id], lock["until_at"], began + CALM_SECONDS + EMERGENCY_SECONDS_MAX)
            meanwhile = [one for one in moments if accepted < one[0] <= until]
            if applied[change_id] - accepted > EMERGENCY_SECONDS_MAX and not _is_queue(meanwhile, change_id, urgent):
                waited = applied[change_id] - accepted
                yield f"{receipt['key']} waited {waited:.1f} s while the rows of {lock['entity_id']} were held"


def _is_queue(meanwhile: list[tuple[float, int]], change_id: int, urgent: set[int]) -> bool:
    overtook = [one for _, one in meanwhile if one > change_id and one not in urgent]
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(meanwhile)]
    return len(meanwhile) > OVERTAKING_MAX and len(overtook) <= OVERTAKING_MAX and max(gaps) <= EMERGENCY_SECONDS_MAX


def _entity(row: Row) -> Entity:
    return row["entity_type"], row["entity_id"]


def _payload(row: Row) -> Row:
    value = row["payload"]
    read: Row = json.loads(value) if isinstance(value, (str, bytes)) else value
    return read
