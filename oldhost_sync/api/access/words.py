"""Who may read OldHost's words. They may repeat a payload, and viewers see no payload, by no path.

Operators, and the application that made the change, get them as they are. Viewers get what is left without quoted text,
numbers and ids: what dead letters are grouped by. They can't search in the words either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from oldhost_sync.api.access.auth import OPERATORS, Caller
from oldhost_sync.api.problems import forbidden
from oldhost_sync.policy.alert_cause import REASON_LENGTH_MAX, cause_of
from oldhost_sync.settings import Role

T = TypeVar("T")

# The fields that hold OldHost's words. The steps whose `detail` is ours, or an operator's; that of any other may be
# OldHost's: those of an answer, of a dead letter, and of one that was discarded.
_WORDS = frozenset({"error", "answer", "example"})
_OUR_STEPS = frozenset({
    "scheduled", "cancelled", "accepted", "relayed", "reserved", "sent", "set_aside", "applied", "superseded", "no_op",
    "stale", "retry", "discard", "confirm", "correct", "replace", "halt",
})  # fmt: skip


def seen_by(caller: Caller, found: T) -> T:
    """`found` (a view or a list of views) as `caller` may see it."""
    return _reduced(found) if caller.role is Role.VIEWER else found


def refuse_search_in_words(caller: Caller, wanted: str | None) -> None:
    """Raises a Problem, 403: whoever may search in a text can find out what it says."""
    if wanted is not None and caller.role is Role.VIEWER:
        raise forbidden(caller.role, OPERATORS)


def _reduced(found: Any) -> Any:
    if isinstance(found, list | tuple):
        return type(found)(_reduced(each) for each in found)
    if isinstance(found, Mapping):
        return {name: _field(name, value, found.get("step")) for name, value in found.items()}
    if not is_dataclass(found) or isinstance(found, type):
        return found
    values = {each.name: getattr(found, each.name) for each in fields(found) if each.init}
    return replace(found, **{name: _field(name, value, values.get("step")) for name, value in values.items()})


def _field(name: str, value: Any, step: Any) -> Any:
    if isinstance(value, str) and (
        name in _WORDS or (name == "detail" and step is not None and step not in _OUR_STEPS)
    ):
        return cause_of(value, REASON_LENGTH_MAX) if value else value
    return _reduced(value)
