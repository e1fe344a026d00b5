"""Which of an entity's states may be sent to OldHost again, so that OldHost agrees with the shadow state. Pure.

Only LWW states: each holds the whole state of its key, and sending it twice does no harm. And only if no later change
of the entity may have set the same fields: an older status must not undo the effect of a later check-out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oldhost_sync.policy.changes import PriorityClass

# States are sent again only while fewer LWW changes than this have no fate: 40 s of OldHost's time at 400 ms, far below
# the time that an LWW change may wait.
WAITING_MAX = 100
# Entities checked in one transaction.
ENTITIES_AT_ONCE = 20


def states_to_send(
    state: Mapping[str, Mapping[str, Any]], applied: Mapping[str, int], classes: Mapping[str, str]
) -> list[str]:
    """The event types whose states may be sent again, in the order in which they were applied.

    `state`: the shadow state, payloads by event type. `applied`: the id of the last applied change of each event type.
    `classes`: the present class of each event type.
    """
    sendable = [each for each in state if each in applied and classes.get(each) == PriorityClass.LWW]
    fit = [each for each in sendable if not _may_be_set_since(each, state, applied, classes)]
    return sorted(fit, key=applied.__getitem__)


def _may_be_set_since(
    event_type: str, state: Mapping[str, Mapping[str, Any]], applied: Mapping[str, int], classes: Mapping[str, str]
) -> bool:
    newer = [each for each, change_id in applied.items() if change_id > applied[event_type]]
    own = set(state[event_type])
    return any(classes.get(each) != PriorityClass.LWW or own & set(state.get(each, ())) for each in newer)
