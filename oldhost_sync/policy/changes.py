"""What the policy knows of a change: its place in the order, its class, its key. Never its payload.

The change id gives the order: the database assigns it under the entity's row lock, so that a larger id of the same
entity is a newer change (invariant I4). All instants here are whole milliseconds since 1970.
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
    """What LWW changes must share to replace one another (trap 9: the event type is part of it)."""

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

    # Computed once: they are the keys of most of the machine's structures.
    entity: EntityKey
    key: CoalescingKey


class ChangeRef(_Ref):
    """One change as all but the store see it: everything that decides when it is sent, but not its payload.
    `property_id`: its unit's property when the writer received it; empty: none, or not known.

    A tuple, which is quick to make: a writer that takes over 50,000 changes makes them all in one task.
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


# The `outcome` of a change that has no fate yet.
BOUND = "BOUND"  # it has a nonce, is in doubt, and must be sent first
WAITING = "WAITING"  # it has no nonce and waits as before
HELD = "HELD"  # it has no nonce and waits behind a dead letter of its entity


@dataclass
class ChangeResult:
    """What a send, an opening or a reservation reports of one change: `outcome` is its fate (an Outcome's name), or
    BOUND, WAITING or HELD. `unproven`: no answer of OldHost proves that fate (APPLIED: unconfirmed; DEAD: unsure).
    """

    change_id: int
    outcome: str
    nonce: int | None = None
    error: str | None = None
    unproven: bool = False
