"""Which of an entity's states may be sent to OldHost again, so that it has what the shadow shows. Pure.

Only LWW states: they say the whole state of their key, and sending one twice does no harm. And only where nothing else
was applied to the entity since that may have set the same: an older status must not undo what a check-out did after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oldhost_sync.policy.changes import PriorityClass

# LWW changes without a fate, all together, up to which more are sent again: 40 s of OldHost's time at 400 ms, far
# within the time that an LWW change may wait.
WAITING_MAX = 100
# Entities looked at in one transaction.
ENTITIES_AT_ONCE = 20


def states_to_send(
    state: Mapping[str, Mapping[str, Any]], applied: Mapping[str, int], classes: Mapping[str, str]
) -> list[str]:
    """The event types whose states may be sent again, in the order in which they were applied.

    `state`: the shadow, payloads by event type. `applied`: the id of the last change that OldHost has of each event
    type. `classes`: the class of each, as it is now.
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
