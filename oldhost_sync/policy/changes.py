"""What a change is to the policy: its place in the order, its class, its key. Never its payload.

A change id is the order token: the database gives it out under the entity's row lock, so that for one
entity a larger id is a newer change (invariant I4). All instants here are whole milliseconds since the epoch.
"""

# Annotations are values here, not text; see workflows/messages.py.
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

_new = tuple.__new__


class PriorityClass(StrEnum):
    """The three classes of change (docs/glossary.md)."""

    EMERGENCY = "EMERGENCY"
    TXN = "TXN"
    LWW = "LWW"


class Outcome(StrEnum):
    """The recorded fate of a change; each accepted change ends with exactly one (invariant I5)."""

    APPLIED = "APPLIED"
    SUPERSEDED = "SUPERSEDED"
    NO_OP = "NO_OP"
    STALE = "STALE"
    DEAD = "DEAD"
    DISCARDED = "DISCARDED"


class EntityKey(NamedTuple):
    """The thing a change is about; operations of one entity keep their order."""

    entity_type: str
    entity_id: str


class CoalescingKey(NamedTuple):
    """What LWW changes must share to replace one another (trap 9: the event type belongs to it)."""

    entity_type: str
    entity_id: str
    event_type: str


class _Ref(NamedTuple):
    change_id: int
    priority_class: PriorityClass
    entity_type: str
    entity_id: str
    event_type: str
    accepted_at_ms: int
    property_id: str

    # Computed once: every structure of the machine is keyed by them.
    entity: EntityKey
    key: CoalescingKey


class ChangeRef(_Ref):
    """One change as everybody but the store sees it: all that decides when it goes, nothing of what it says.
    `property_id`: its unit's property when the writer was told of it; empty: none, or none is known.

    A tuple, made without detours: a writer that takes 50,000 of them over makes them all in one go.
    """

    __slots__ = ()

    def __new__(
        cls,
        change_id: int,
        priority_class: PriorityClass,
        entity_type: str,
        entity_id: str,
        event_type: str,
        accepted_at_ms: int,
        property_id: str = "",
    ) -> Self:
        entity = _new(EntityKey, (entity_type, entity_id))
        key = _new(CoalescingKey, (entity_type, entity_id, event_type))
        names = (entity_type, entity_id, event_type)
        return _new(cls, (change_id, priority_class, *names, accepted_at_ms, property_id, entity, key))

    def __getnewargs__(self) -> tuple[int, PriorityClass, str, str, str, int, str]:
        return self[:7]


# What a fate says of a change that has no outcome yet.
BOUND = "BOUND"  # it holds a nonce, its end is in doubt, and it must be sent first
WAITING = "WAITING"  # it holds none and waits as before
HELD = "HELD"  # it holds none, and an older change of its entity that OldHost rejected waits for an operator


@dataclass
class Fate:
    """What became of one change: `outcome` is an Outcome's name, or BOUND, WAITING or HELD."""

    change_id: int
    outcome: str
    nonce: int | None = None
    error: str | None = None
